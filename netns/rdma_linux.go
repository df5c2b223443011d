package netns

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RDMALinkAdd creates a software RDMA device of the kernel on an interface of a namespace, as "rdma
// link add NAME type KIND netdev NETDEV" does. kind is "rxe" (RoCE) or "siw" (iWARP). The kernel
// requires root in the initial user namespace.
func RDMALinkAdd(ns *NS, kind, name, netdev string) error {
	if kind != "rxe" && kind != "siw" {
		return fmt.Errorf("rdma link %s: kind %q: the kernel has rxe and siw", name, kind)
	}
	err := ns.Do(func() error { return netlink.RdmaLinkAdd(name, kind, netdev) })
	if err != nil {
		return fmt.Errorf("rdma link add %s type %s netdev %s: %w", name, kind, netdev, explainRDMA(err, kind))
	}
	return nil
}

// explainRDMA adds the likely cause to an error of creating a device of this kind.
func explainRDMA(err error, kind string) error {
	module := map[string]string{"rxe": "rdma_rxe", "siw": "siw"}[kind]
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%w: the kernel has no RDMA: it needs CONFIG_INFINIBAND, and its module ib_core loaded (modprobe ib_core)", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the kernel takes this from real root only, not in a user namespace: run as root", err)
	case (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)) && !loaded(module):
		return fmt.Errorf("%w: the module %s is not loaded: run \"modprobe %[2]s\" as root, on a kernel that has it", err, module)
	default:
		return err
	}
}

// loaded reports whether a module is loaded or built in.
func loaded(module string) bool {
	_, err := os.Stat("/sys/module/" + module)
	return err == nil
}
