"""Calls of PyTorch's functions, as text, with the numbers they are called on; `record_torch.py` writes what they give.

A call is evaluated with the functions' bare names, `F` for `nn.functional`, `S` for `special`, and the arrays of
`INPUTS`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parents[1] / "data" / "torch_functions.json"

INPUTS: dict[str, Any] = {
    "x": np.array([[0.5, -0.3, 0.8], [0.2, 0.7, -0.9]]),
    "y": np.array([[0.4, 0.6, -0.2], [0.1, -0.5, 0.3]]),
    "p": np.array([[0.5, 0.3, 0.8], [0.2, 0.7, 0.9]]),
    "v": np.array([0.3, 0.6, -0.2]),
    "one": np.array([0.3]),
    "w": np.array([[0.3, 0.6, -0.2], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [0.1, 0.2, 0.3]]),
    "b": np.array([0.3, 0.6, -0.2, 0.4]),
    # The kinks of every function in pieces, and what lies between.
    "k": np.array([-7.0, -3.0, -2.5, -1.0, -0.5, -0.2, 0.0, 0.1, 0.5, 1.0, 1.5, 3.0, 6.0, 8.0]),
    "large": np.array([-800.0, -50.0, -5.0, 5.0, 50.0, 800.0]),
    "ties": np.array([[1.0, 2.0, 2.0, 0.0], [2.0, 2.0, 1.0, 0.0], [0.0, 3.0, 0.0, 3.0]]),
    "other": np.array([[1.0, 2.0, 0.0, 0.0], [3.0, 2.0, 1.0, -1.0], [0.0, 3.0, 2.0, 4.0]]),
    "zeros": np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]),
    "row": np.array([2.0, 0.0, 3.0, 0.0, 5.0]),
    "holes": np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 2.0]]),
    "wild": np.array([np.nan, np.inf, -np.inf, 1.5]),
    "s": np.array(0.7),
    "i": np.array([2, 0]),
    "j": np.array([[0, 1, 2, 1], [2, -100, 0, 1]]),
    "n": np.array([[3, -2, 7], [5, 0, -7]]),
    "m": np.array([[2, 3, -2], [-2, 4, 3]]),
    "places": np.array([[0, 0, 2], [1, 1, 1]]),
    "meeting": np.array([[0, 0, 1, 1], [2, 2, 2, 2], [1, 2, 3, 0]]),
    "again": np.array([0, 0]),
    "void": np.zeros((0, 3)),
    "q": np.array([[True, False, True], [False, False, True]]),
    "edge": np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.25]]),
    # Floats that no derivative is taken of.
    "fixed": np.array([[0.5, 0.3, 0.8], [0.2, 0.7, 0.9]]),
    "scales": np.array([0.3, 1.6, 0.2]),
    "bits": np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
    "nil": np.zeros(14),
    # An image of two channels, a kernel for each of two groups, one for both channels.
    "image": np.sin(np.arange(60.0)).reshape(1, 2, 5, 6),
    "kernel": np.cos(np.arange(24.0)).reshape(4, 1, 3, 2),
    "full": np.cos(np.arange(24.0)).reshape(2, 2, 3, 2),
    "taps": np.array([[[1.0, -1.0, 0.5]], [[0.0, 2.0, 1.0]]]),
    "cube": np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4) ** 3 + 0.1,
}

CONSTANT = {"fixed", "scales", "bits", "nil", "void"}

# Calls without blanks; a group is traced as one function.
GROUPS = {
    "functions of one": """
        abs(x) acos(x) acosh(add(p,1)) asin(x) asinh(x) atan(x) atanh(x) cos(x) cosh(x) deg2rad(x) rad2deg(x) erf(x)
        erfc(x) exp(x) exp2(x) expm1(x) log(p) log10(p) log1p(p) log2(p) neg(x) reciprocal(x) rsqrt(p) sigmoid(x)
        sin(x) sinh(x) sqrt(p) square(x) tan(x) tanh(x) relu(x) sinc(x) sinc(zeros) logit(p) logit(p,eps=.25) frac(k)
        nan_to_num(x) nan_to_num(wild) nan_to_num(wild,nan=1.,posinf=2.,neginf=3.) positive(x) angle(k) sgn(k)
        erfc(large) erfinv(x) lgamma(p) digamma(p) polygamma(1,p) polygamma(0,p)
    """,
    "special": """
        S.entr(p) S.xlog1py(x,p) S.xlog1py(x,2.) S.xlog1py(2.,p) S.expit(x) S.gammaln(p) S.erfinv(x) S.psi(p)
        S.softmax(x,0) S.log_softmax(x,1) S.logsumexp(x,0) S.logit(p) S.sinc(x) S.xlogy(x,p) S.erfc(k) S.exp2(x)
    """,
    "arithmetic": """
        add(x,y) add(x,2) add(x,y,alpha=2) add(x,v) sub(x,y) sub(x,y,alpha=.5) rsub(x,y) rsub(x,2) rsub(x,y,alpha=3)
        mul(x,y) mul(x,2) div(x,y) div(x,2) true_divide(x,y) div(x,y,rounding_mode='floor')
        div(x,y,rounding_mode='trunc') div(n,m,rounding_mode='trunc') div(n,m,rounding_mode='floor') div(n,m)
        fmod(x,y) fmod(k,2) fmod(n,m) remainder(x,y) remainder(k,2) remainder(n,m) pow(p,y) pow(x,2) pow(2,x)
        pow(x,3.) float_power(p,2) pow(zeros,2) pow(zeros,1) pow(zeros,0) lerp(x,y,.3) lerp(x,y,.8) lerp(x,y,p)
        addcmul(x,y,p) addcmul(x,y,p,value=2) addcdiv(x,y,p,value=2) addcdiv(x,y,v) xlogy(x,p) xlogy(x,2.) xlogy(2.,p)
        xlogy(zeros,p) xlogy(zeros,zeros) hypot(x,y) atan2(x,y) atan2(zeros,zeros) atan2(zeros,x) logaddexp(x,y)
        logaddexp2(x,y) copysign(x,y) copysign(x,-1.) copysign(zeros,x)
    """,
    "steps": """
        floor(k) ceil(k) trunc(k) fix(k) round(k) round(x,decimals=1) round(w,decimals=-1) sign(k) floor(n) round(n)
        abs(k) signbit(k) isnan(wild) isinf(wild) isfinite(wild) isposinf(wild) isneginf(wild)
    """,
    "choices": """
        clamp(x,0.,.5) clamp(k,-1,1) clamp(k,min=0.) clamp(k,max=0.) clamp(x,y,p) clamp(x,min=y) clamp(x,max=y)
        clamp(ties,other,add(other,1)) clip(k,-.5,.5) clamp_min(k,0.) clamp_max(k,0.) clamp_min(x,y) clamp_max(x,y)
        clamp(n,0.5) clamp(n,0,3) maximum(ties,other) minimum(ties,other) fmax(ties,other) fmin(ties,other)
        fmax(holes,x) fmin(x,holes) maximum(x,y) where(gt(x,0),x,y) where(gt(x,0),x,0.) where(q,2.,x) max(ties,other)
        min(ties,other)
    """,
    "comparisons": """
        eq(ties,other) ne(ties,other) lt(ties,other) le(ties,1) gt(ties,other) ge(ties,2.) not_equal(n,m) less(n,m)
        greater_equal(n,m) logical_and(n,q) logical_or(n,q) logical_xor(ties,other) logical_not(n) isclose(ties,other)
        isclose(holes,holes,equal_nan=True) equal(x,x) equal(x,v) equal(n,m) allclose(x,x) allclose(x,y)
        bitwise_and(q,q) bitwise_not(q)
    """,
    "sums": """
        sum(x) sum(x,0) sum(x,dim=1,keepdim=True) sum(x,(0,1)) sum(cube,(0,2)) sum(n) sum(q) sum(x,axis=0) sum(s)
        sum(cube,(-1,0),keepdim=True) mean(x) mean(x,0) mean(x,(0,1),keepdim=True) mean(cube,-1) prod(x) prod(x,0)
        prod(zeros,1) prod(row) prod(x,1,keepdim=True) nansum(holes) nansum(holes,0) nanmean(holes,1) nanmean(holes)
        cumsum(x,0) cumsum(cube,-1) cumsum(n,1) cumprod(x,0) cumprod(row,0) cumprod(cube,1) logcumsumexp(x,1)
        logcumsumexp(large,0) diff(x) diff(x,n=2) diff(x,dim=0,prepend=zeros,append=zeros) trapezoid(x) trapezoid(x,y)
        trapezoid(x,dx=2.) trapezoid(x,v,dim=1) gradient(x)[0] gradient(x,dim=1)[0]
        gradient(cube,spacing=2.,edge_order=2,dim=-1)[0] gradient(x,spacing=(v,),dim=1)[0]
        gradient(image,dim=(2,3),edge_order=2) count_nonzero(zeros) count_nonzero(n,dim=0)
    """,
    "moments": """
        var(x) var(x,0) var(x,1,keepdim=True) var(x,correction=0) var(x,0,unbiased=False) var(x,False) var(cube,(0,2))
        std(x) std(x,1) std(x,dim=(0,1),correction=2,keepdim=True) std(ties,0) std(zeros,dim=1) std_mean(x)
        std_mean(x,0) var_mean(x,1,keepdim=True) var_mean(cube,dim=(1,2),correction=0)
    """,
    "extrema": """
        max(x) max(ties) max(ties,0) max(ties,1) max(ties,dim=1,keepdim=True) min(x) min(ties) min(ties,0)
        min(ties,-1) amax(ties) amax(ties,1) amax(cube,(0,2)) amin(ties,(0,1)) amin(ties,0,keepdim=True) aminmax(ties)
        aminmax(ties,dim=1) argmax(x) argmax(ties,1) argmin(ties,0) argmin(ties,dim=0,keepdim=True)
        argmax(x,keepdim=True) median(x) median(ties) median(x,0) median(x,1) median(cube,2,keepdim=True)
        median(holes) median(holes,1) max(n) max(n,1) max(holes,1) max(s,0) all(q) any(q) all(q,0)
        any(q,dim=1,keepdim=True) all(x) any(zeros,1)
    """,
    "norms": """
        norm(x) norm(x,1) norm(x,2,dim=0) norm(x,3,dim=(0,1)) norm(x,'fro') norm(x,inf) norm(ties,inf,1) norm(x,-inf)
        norm(x,0) norm(zeros,dim=1) norm(zeros,1,dim=1) norm(zeros,3,dim=1) norm(zeros,.5,dim=1) norm(zeros,1.5)
        norm(x,-1.) norm(x,dim=1,keepdim=True) dist(x,y) dist(x,y,1) dist(x,x) dist(x,v,3) logsumexp(x,0)
        logsumexp(x,(0,1)) logsumexp(large,0) logsumexp(cube,(0,-1),keepdim=True) softmax(x,0) softmax(large,0)
        log_softmax(x,1) log_softmax(large,0) softmax(s,0)
    """,
    "rectifiers": """
        F.relu(k) F.relu6(k) F.leaky_relu(k) F.leaky_relu(k,.2) F.elu(k) F.elu(k,.7) F.selu(k) F.celu(k) F.celu(k,.5)
        F.hardtanh(k) F.hardtanh(k,-.5,.5) F.hardsigmoid(k) F.hardswish(k) F.hardshrink(k) F.softshrink(k)
        F.threshold(k,.1,.2) F.tanhshrink(k) F.prelu(x,one) F.prelu(x,v) relu(k) F.elu(large)
    """,
    "smooth activations": """
        F.gelu(k) F.gelu(k,approximate='tanh') F.glu(w[:,:2]) F.glu(cube) F.silu(k) F.mish(k) F.softplus(k)
        F.softplus(k,2.) F.softplus(k,2.,1.1) F.softsign(k) F.softmax(x,1) F.softmin(x,1) F.log_softmax(x,1)
        F.logsigmoid(k) F.logsigmoid(large) F.silu(large) F.softplus(large) F.gelu(large) F.mish(large) F.sigmoid(x)
        F.tanh(x)
    """,
    "losses": """
        F.mse_loss(x,y) F.mse_loss(x,y,reduction='none') F.mse_loss(x,y,reduction='sum') F.l1_loss(x,y)
        F.l1_loss(x,y,reduction='none') F.l1_loss(x,x) F.smooth_l1_loss(k,nil) F.smooth_l1_loss(x,y,beta=.3)
        F.huber_loss(x,y) F.huber_loss(x,y,delta=.3,reduction='sum') F.nll_loss(x,i) F.nll_loss(x,i,reduction='none')
        F.nll_loss(x,i,weight=scales) F.nll_loss(x,i,ignore_index=2) F.nll_loss(cube,j,weight=scales)
        F.nll_loss(cube,j) F.cross_entropy(x,i) F.cross_entropy(x,i,label_smoothing=.1)
        F.cross_entropy(x,i,scales,label_smoothing=.1) F.cross_entropy(x,p)
        F.cross_entropy(x,p,weight=scales,label_smoothing=.2) F.cross_entropy(x,p,reduction='none')
        F.cross_entropy(v,i[0]) F.cross_entropy(x,i,reduction='sum') F.binary_cross_entropy(p,fixed)
        F.binary_cross_entropy(p,square(x),weight=fixed,reduction='sum') F.binary_cross_entropy(edge,bits)
        F.binary_cross_entropy_with_logits(x,p) F.binary_cross_entropy_with_logits(x,p,reduction='none')
        F.binary_cross_entropy_with_logits(x,p,weight=fixed,pos_weight=scales) F.cosine_similarity(x,y)
        F.cosine_similarity(x,v,dim=-1) F.cosine_similarity(zeros,x) F.kl_div(x,p,reduction='sum')
        F.kl_div(x,y,reduction='batchmean',log_target=True)
    """,
    "layers": """
        F.linear(x,w) F.linear(x,w,b) F.linear(v,w,b) F.linear(x[None],w) F.linear(x[None],w,b) F.linear(x,v)
        F.linear(v,v) F.normalize(x) F.normalize(zeros,p=1.,dim=0) F.layer_norm(x,(3,)) F.layer_norm(x,(3,),v,v)
        F.layer_norm(cube,(3,4)) F.layer_norm(x,[2,3],p,y,.1) F.embedding(i,w) F.embedding(i,w,padding_idx=0)
        F.one_hot(i) F.one_hot(i,4) F.pad(x,(1,2)) F.pad(x,(1,2,0,1),value=3.) F.pad(x,(-1,2))
        F.pad(cube,(1,1,2,0),'reflect') F.pad(cube,(2,1),mode='replicate') F.pad(cube,(2,1),mode='circular')
    """,
    "attention": """
        F.pairwise_distance(x,y) F.pairwise_distance(x,v,p=1.,keepdim=True) F.pairwise_distance(zeros,p,eps=.1)
        F.pixel_shuffle(cube.reshape(8,1,3),2) F.pixel_unshuffle(image[...,:4,:],2)
        F.scaled_dot_product_attention(cube,cube+.3,cube*2.) F.scaled_dot_product_attention(x,w,w[:,:2],scale=.3)
        F.scaled_dot_product_attention(cube,cube,cube,is_causal=True)
        F.scaled_dot_product_attention(x,w,w,attn_mask=ties[:2])
        F.scaled_dot_product_attention(x,y,y,attn_mask=ties[:2,:2]>1.5)
        F.scaled_dot_product_attention(x,y,y,attn_mask=ties[1:3,:2]>2.5)
    """,
    "convolution": """
        F.conv2d(image,full) F.conv2d(image,full,v[:2]) F.conv2d(image,kernel,b,groups=2) F.conv2d(image[0],full)
        F.conv2d(image,full,stride=2,padding=1) F.conv2d(image,full,stride=(1,2),padding=(2,0),dilation=(2,1))
        F.conv2d(image,kernel,groups=2,padding='same') F.conv1d(x[:,None],taps) F.conv1d(x[:,None],taps,v[1:],2,2)
        F.conv3d(image[:,:,None],full[:,:,None]) F.max_pool2d(image,2) F.max_pool2d(image,(3,2),stride=1,padding=1)
        F.max_pool2d(image,3,2,ceil_mode=True) F.max_pool2d(ties[None],2) F.max_pool2d(image,2,1,dilation=2)
        F.avg_pool2d(image,2) F.avg_pool2d(image,3,2,1) F.avg_pool2d(image,3,2,1,count_include_pad=False)
        F.avg_pool2d(image,2,3,1,ceil_mode=True) F.avg_pool2d(image,2,divisor_override=3) F.avg_pool2d(image[0],(3,2))
        F.adaptive_avg_pool2d(image,(2,4)) F.adaptive_avg_pool2d(image,1) F.adaptive_avg_pool2d(image,(None,2))
        F.avg_pool3d(image,2) F.max_pool3d(image,2)
    """,
    "reduced where indices meet": """
        scatter_reduce(x,1,places,y,'sum') scatter_reduce(x,1,places,y,'mean') scatter_reduce(p,1,places,y,'prod')
        scatter_reduce(x,1,places,y,'amax') scatter_reduce(x,1,places,y,'amin')
        scatter_reduce(x,1,places,y,'prod',include_self=False) scatter_reduce(x,1,places,y,'mean',include_self=False)
        scatter_reduce(x,1,places,y,'amax',include_self=False) scatter_reduce(x,1,places,y,'amin',include_self=False)
        scatter_reduce(zeros,1,places,y,'prod') scatter_reduce(ties,1,meeting,other,'amax')
        scatter_reduce(ties,1,meeting,other,'amin') scatter_reduce(n,1,places,m,'mean')
        scatter_reduce(n,1,places,m,'prod') scatter_reduce(n,1,places,m,'amax',include_self=False)
        index_reduce(x,1,again,y[:,:2],'prod') index_reduce(x,1,again,y[:,:2],'mean')
        index_reduce(x,1,again,y[:,:2],'amax') index_reduce(x,1,again,y[:,:2],'amin')
        index_reduce(x,0,again,y,'prod',include_self=False) index_reduce(x,0,again,y,'mean',include_self=False)
        index_reduce(x,0,again,y,'amax',include_self=False) index_reduce(n,0,again,m,'amin')
    """,
    "quantiles": """
        quantile(x,.3) quantile(x,.3,1,keepdim=True) quantile(x,fixed[0],dim=1) quantile(x,.3,interpolation='lower')
        quantile(x,.3,interpolation='higher') quantile(x,.3,interpolation='midpoint')
        quantile(x,.3,interpolation='nearest') quantile(s,.5,0) nanquantile(holes,.3)
        nanquantile(holes,fixed[0],dim=1) nanquantile(x,.6,0,keepdim=True)
        nanmedian(holes) nanmedian(holes,1) nanmedian(x,0,keepdim=True) nanmedian(s,0) nanmedian(n,1)
    """,
    "counted": """
        histc(fixed) histc(fixed,bins=4,min=-1,max=1) histc(fixed,bins=3) histc(scales,5,0,6)
        bincount(meeting[0],minlength=5) cov(x) cov(v) cov(x,correction=0) corrcoef(x) cdist(x,y) cdist(x,y,p=1.)
        cdist(x,x) F.pdist(w) F.pdist(w,p=3.)
    """,
    "bits": """
        bitwise_left_shift(n,2) bitwise_right_shift(n,1) bitwise_left_shift(n,i[0]) gcd(n,m) lcm(n,m) bitwise_and(n,m)
        bitwise_or(n,m) bitwise_xor(n,3) bitwise_not(n) ldexp(fixed,n) frexp(fixed) nextafter(fixed,scales)
    """,
    "nothing": """
        logsumexp(void,0) logsumexp(void,(0,1)) sum(void,0) prod(void,0) norm(void,2,0) any(void) all(void,0)
        softmax(s,dim=0) log_softmax(s,0) logsumexp(s,0) cumsum(s,0) sort(s,0) max(s,0) sum(s,0) mean(s,0) prod(s,0)
        flip(s,(0,))
    """,
    "more of SciPy's": """
        S.erfcx(x) S.i0e(x) S.i1(x) S.i1e(x) S.log_ndtr(x) S.ndtri(p) S.gammaincc(fixed,p) S.zeta(fixed+1,add(p,1))
        S.bessel_j0(fixed) S.bessel_y1(fixed) S.modified_bessel_k0(fixed) S.spherical_bessel_j0(fixed)
        S.scaled_modified_bessel_k1(fixed) S.airy_ai(fixed) i0(x)
    """,
    "normalization": """
        F.batch_norm(x,None,None,training=True) F.batch_norm(x,scales,scales) F.batch_norm(x,fixed[0],scales,v,v)
        F.batch_norm(cube,None,None,v,v,training=True,eps=.1) F.batch_norm(image,None,None,training=True)
        F.group_norm(image,2) F.group_norm(image,1,one[0].repeat(2),one[0].repeat(2)) F.layer_norm(image,(5,6))
    """,
    "pooling by indices": """
        F.max_pool2d(image,2,return_indices=True) F.max_pool2d(image,3,2,1,ceil_mode=True,return_indices=True)
        F.max_pool2d(image,2,1,dilation=2,return_indices=True) F.max_pool3d(image,2,return_indices=True)
        F.adaptive_max_pool2d(image,(3,4),return_indices=True) F.adaptive_max_pool2d(image,(3,None))
        F.adaptive_max_pool3d(image,2,return_indices=True) F.adaptive_avg_pool3d(image,(1,2,3))
        F.max_unpool2d(*F.max_pool2d(image,2,return_indices=True),2)
        F.max_unpool2d(*F.max_pool2d(image,2,return_indices=True),2,output_size=(5,6)) F.lp_pool2d(image,2.,2)
        F.pad(image,(-1,2,1,-2),'reflect') F.pad(image,(-1,2,1,2),'replicate') F.pad(image,(-1,1,1,2),'circular')
        F.pad(x,(-1,-1)) F.pad(x,(1,-1,-1,2))
    """,
    "pooling of one dimension": """
        F.max_pool1d(image[0],2,return_indices=True) F.adaptive_max_pool1d(image[0],4,return_indices=True)
        F.max_unpool1d(*F.max_pool1d(image[0],2,return_indices=True),2) F.lp_pool1d(image[0],3.,2)
        F.instance_norm(image) F.instance_norm(cube,weight=v,bias=v) F.rms_norm(x,(3,)) F.rms_norm(x,(3,),v,.1)
        F.local_response_norm(image,2) F.local_response_norm(image,3,.5,.5,2.) S.ndtr(x) S.multigammaln(add(p,3),2)
        F.max_pool1d(image[0],2) F.max_pool1d(image[0],3,2,1) F.avg_pool1d(image[0],2) F.avg_pool1d(image[0],3,1,1)
        F.adaptive_avg_pool1d(image[0],4)
    """,
}


def calls(group: str) -> list[str]:
    """The calls of a group."""
    return GROUPS[group].split()


def weights(shape: tuple[int, ...]) -> Any:
    """What the elements of a result of `shape` count in a sum that derivatives are taken of."""
    return (1 + 0.25 * (np.arange(np.prod(shape, dtype=int)) % 7)).reshape(shape)


def recorded() -> dict[str, Any]:
    """What PyTorch gives: for each call `values`, `grads`, `second` and `nodes`."""
    return json.loads(RECORD.read_text())
