//go:build ibverbs && linux && cgo

package ibv

// #cgo LDFLAGS: -libverbs -lrdmacm
// #cgo noescape shim_post_send
// #cgo nocallback shim_post_send
// #cgo noescape shim_post_recv
// #cgo nocallback shim_post_recv
// #cgo noescape shim_poll_cq
// #cgo nocallback shim_poll_cq
// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/verbs"
)

// Linked says whether this program was built with libibverbs.
const Linked = true

// Devices lists the kernel's RDMA devices; none is no error.
func (Provider) Devices() (infos []verbs.DeviceInfo, err error) {
	err = eachDevice("get_device_list", func(d *C.struct_ibv_device) bool {
		infos = append(infos, describe(d))
		return true
	})
	return infos, err
}

// Open opens a device by its name, as listed by Devices and ibv_devices(1). It may be opened
// several times; objects of one Context cannot be used with another.
func (Provider) Open(device string) (verbs.Context, error) {
	var found *Context
	var others []string
	var openErr error
	err := eachDevice("open_device", func(d *C.struct_ibv_device) bool {
		if name := C.GoString(C.ibv_get_device_name(d)); name != device {
			others = append(others, name)
			return true
		}
		found, openErr = open(d)
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case openErr != nil:
		return nil, openErr
	case found == nil:
		return nil, opError("open_device", device, fmt.Errorf("%w: %s", verbs.ErrNotFound, deviceHint(others)))
	}
	return found, nil
}

// deviceHint lists the devices, or tells how to create one.
func deviceHint(names []string) string {
	if len(names) == 0 {
		return "this machine has no RDMA device; soft-RoCE makes one: modprobe rdma_rxe, rdma link add rxe0 type rxe netdev eth0"
	}
	return "this machine has " + strings.Join(names, ", ")
}

// eachDevice calls f with every device until it returns false.
func eachDevice(op string, f func(*C.struct_ibv_device) bool) error {
	var n C.int
	list, errno := C.shim_get_device_list(&n)
	if list == nil {
		return opError(op, "", hinted(cause(errno), "the kernel has no user verbs; modprobe ib_uverbs", syscall.ENOSYS, syscall.ENOENT))
	}
	defer C.ibv_free_device_list(list)
	for i := range n {
		if !f(C.shim_device_at(list, i)) {
			return nil
		}
	}
	return nil
}

func describe(d *C.struct_ibv_device) verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Name: C.GoString(C.ibv_get_device_name(d)), Provider: ProviderName,
		Transport: verbs.Transport(C.shim_transport(d)), GUID: uint64(C.shim_guid(d)),
	}
}

// open opens a device of the list.
func open(d *C.struct_ibv_device) (*Context, error) {
	info := describe(d)
	dev, errno := C.ibv_open_device(d)
	if dev == nil {
		const hint = "/dev/infiniband/uverbs* must be readable and writable"
		return nil, opError("open_device", info.Name, hinted(cause(errno), hint, syscall.EPERM, syscall.EACCES))
	}
	async, err := newWaiter(dev.async_fd)
	if err != nil {
		C.ibv_close_device(dev)
		return nil, opError("open_device", info.Name, err)
	}
	c := &Context{info: info, dev: dev, async: async, children: make(map[child]struct{})}
	c.ctx = c
	c.byQP = make(map[*C.struct_ibv_qp]*qp)
	c.byCQ = make(map[*C.struct_ibv_cq]*cq)
	c.bySRQ = make(map[*C.struct_ibv_srq]*srq)
	return c, nil
}
