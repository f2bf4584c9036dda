"""Proxies that traced code sees instead of functions, modules, namespaces, and objects from outside."""
