//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// QueryDevice implements verbs.Context.
func (c *Context) QueryDevice() (attr verbs.DeviceAttr, err error) {
	err = callVerb(c, "query_device", func() error {
		attr, err = c.deviceAttr()
		return err
	})
	return attr, err
}

// deviceAttr queries the device, and probes for capabilities that no query reports.
func (c *Context) deviceAttr() (verbs.DeviceAttr, error) {
	var x C.struct_ibv_device_attr_ex
	if err := shimError(C.shim_query_device(c.dev, &x)); err != nil {
		return verbs.DeviceAttr{}, err
	}
	found, err := c.probe()
	if err != nil {
		return verbs.DeviceAttr{}, err
	}
	a := &x.orig_attr
	attr := verbs.DeviceAttr{
		FirmwareVersion: C.GoString(&a.fw_ver[0]), VendorID: uint32(a.vendor_id), VendorPartID: uint32(a.vendor_part_id),
		NodeGUID: uint64(C.shim_be64(a.node_guid)), Caps: reportedCaps(&x) | found.caps,
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxSGERead: int(a.max_sge_rd), MaxInline: found.inline,
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr), MaxMRSize: uint64(a.max_mr_size), MaxMW: int(a.max_mw),
		MaxPD: int(a.max_pd), MaxAH: int(a.max_ah), MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge),
		MaxQPRdAtomic: atMost255(a.max_qp_rd_atom), MaxQPInitAtomic: atMost255(a.max_qp_init_rd_atom),
		MaxMcastGroups: int(a.max_mcast_grp), MaxMcastQPs: int(a.max_mcast_qp_attach), MaxPKeys: int(a.max_pkeys),
		LocalAckDelay: uint8(a.local_ca_ack_delay), Ports: uint8(a.phys_port_cnt),
	}
	if attr.Caps.Has(verbs.CapXRC) {
		attr.MaxXRCD = attr.MaxPD // the library reports no limit; drivers count them as protection domains
	}
	return attr, nil
}

func atMost255(n C.int) uint8 { return uint8(min(max(n, 0), math.MaxUint8)) }

// capAtomicWrite is the kernel's bit for atomic writes, which some headers of libibverbs lack.
const capAtomicWrite = 1 << 40

// reportedCaps returns the capabilities that the device reports, without CapFlush: the library
// cannot post a flush.
func reportedCaps(x *C.struct_ibv_device_attr_ex) (caps verbs.Caps) {
	a := &x.orig_attr
	flags := uint64(a.device_cap_flags) | uint64(x.device_cap_flags_ex)
	for _, k := range []struct {
		claimed bool
		caps    verbs.Caps
	}{
		{flags&C.IBV_DEVICE_XRC != 0, verbs.CapXRC},
		{a.max_srq > 0, verbs.CapSRQ},
		{flags&C.IBV_DEVICE_MEM_WINDOW != 0, verbs.CapMWType1},
		{flags&(C.IBV_DEVICE_MEM_WINDOW_TYPE_2A|C.IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0, verbs.CapMWType2},
		{a.atomic_cap != C.IBV_ATOMIC_NONE, verbs.CapAtomics},
		{a.max_mcast_grp > 0, verbs.CapMulticast},
		{flags&C.IBV_DEVICE_MEM_MGT_EXTENSIONS != 0, verbs.CapSendInv | verbs.CapLocalInv},
		{flags&C.IBV_DEVICE_AUTO_PATH_MIG != 0, verbs.CapAutoMigration},
		{flags&capAtomicWrite != 0, verbs.CapAtomicWrite},
	} {
		if k.claimed {
			caps |= k.caps
		}
	}
	return caps
}

// hasAtomicWrite reports whether RC queue pairs are created with atomic writes.
func (c *Context) hasAtomicWrite() bool {
	found, err := c.probe()
	return err == nil && found.atomicWrite
}

// QueryPort implements verbs.Context.
func (c *Context) QueryPort(port uint8) (attr verbs.PortAttr, err error) {
	err = callVerb(c, "query_port", func() error {
		var a C.struct_ibv_port_attr
		if err := shimError(C.shim_query_port(c.dev, C.uint8_t(port), &a)); err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
		attr = verbs.PortAttr{
			State: verbs.PortState(a.state), MaxMTU: verbs.MTU(a.max_mtu), ActiveMTU: verbs.MTU(a.active_mtu),
			GIDs: int(a.gid_tbl_len), PKeys: int(a.pkey_tbl_len), MaxMsg: uint32(a.max_msg_sz),
			BadPKeys: uint32(a.bad_pkey_cntr), QKeyViolations: uint32(a.qkey_viol_cntr),
			RateBps: linkRateBps(uint8(a.active_speed), uint8(a.active_width)),
		}
		return nil
	})
	return attr, err
}

// linkRateBps returns the rate of a link by IBTA's codes of lane speed and width; 0 if unknown.
func linkRateBps(speed, width uint8) uint64 {
	lane := map[uint8]uint64{ // in kb/s
		1: 2_500_000, 2: 5_000_000, 4: 10_000_000, 8: 10_312_500, 16: 14_062_500, 32: 25_781_250, 64: 53_125_000, 128: 106_250_000,
	}[speed]
	lanes := map[uint8]uint64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	return lane * lanes * 1000
}

// QueryGID implements verbs.Context. An unused entry has no address.
func (c *Context) QueryGID(port uint8, index int) (entry verbs.GIDEntry, err error) {
	err = c.queryTable("query_gid", port, index, func() error {
		var e C.struct_ibv_gid_entry
		err := shimError(C.shim_query_gid(c.dev, C.uint32_t(port), C.uint32_t(index), &e))
		if errors.Is(err, syscall.ENODATA) {
			entry = verbs.GIDEntry{Index: index}
			return nil
		}
		if err == nil {
			entry = verbs.GIDEntry{GID: gidFromC(&e.gid), Index: index, Type: verbs.GIDType(e.gid_type)}
		}
		return err
	})
	return entry, err
}

// queryTable runs f, which reads an entry of a port's table of GIDs or P_Keys, unless the index is
// negative or exceeds a C int.
func (c *Context) queryTable(op string, port uint8, index int, f func() error) error {
	return callVerb(c, op, func() error {
		err := error(verbs.ErrNotFound)
		if index >= 0 && index <= math.MaxInt32 {
			err = f()
		}
		if err != nil {
			err = fmt.Errorf("port %d, index %d: %w", port, index, err)
		}
		return err
	})
}

// netIndex returns the index of the network interface of the device's first GID; 0 if it has none.
func (c *Context) netIndex() int {
	if enter(c, "query_gid") != nil {
		return 0
	}
	defer c.leave()
	const port, index = 1, 0
	var e C.struct_ibv_gid_entry
	if C.shim_query_gid(c.dev, port, index, &e) != 0 {
		return 0
	}
	return int(e.ndev_ifindex)
}

// QueryPKey implements verbs.Context.
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) {
	var key C.uint16_t
	err := c.queryTable("query_pkey", port, index, func() error {
		return shimError(C.shim_query_pkey(c.dev, C.uint8_t(port), C.int(index), &key))
	})
	return uint16(key), err
}

// Counters implements verbs.Context with the hardware counters of device and ports in sysfs.
func (c *Context) Counters() []verbs.Counter {
	return countersIn(filepath.Join("/sys/class/infiniband", c.info.Name))
}

// countersIn reads the counters below the sysfs directory of a device: those of the device, and
// then those of each port, sorted by name. If it has several ports, their names begin with
// "portN_".
func countersIn(device string) (all []verbs.Counter) {
	all = readCounters(filepath.Join(device, "hw_counters"), "")
	ports, _ := os.ReadDir(filepath.Join(device, "ports")) // sorted; none if there is no such folder
	for _, p := range ports {
		prefix := ""
		if len(ports) > 1 {
			prefix = fmt.Sprintf("port%s_", p.Name())
		}
		all = append(all, readCounters(filepath.Join(device, "ports", p.Name(), "hw_counters"), prefix)...)
	}
	return all
}

// readCounters reads the files of a directory that contain a number, except lifespan, which is the
// maximum age of the values.
func readCounters(dir, prefix string) (all []verbs.Counter) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if f.Name() == "lifespan" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			all = append(all, verbs.Counter{Name: prefix + f.Name(), Value: v})
		}
	}
	return all
}

// probed has the results of probe.
type probed struct {
	once        sync.Once
	caps        verbs.Caps
	inline      int
	atomicWrite bool
	err         error
}

// maxProbedInline bounds the search for the limit of inline data.
const maxProbedInline = 4096

// probe finds out capabilities that no query of libibverbs reports, by creating objects, and
// whether the device has atomic writes. Later calls return the result of the first. The caller
// holds the read lock of closeLock.
func (c *Context) probe() (*probed, error) {
	p := &c.probes
	p.once.Do(func() {
		var x C.struct_ibv_device_attr_ex
		if p.err = shimError(C.shim_query_device(c.dev, &x)); p.err != nil {
			return
		}
		p.atomicWrite = uint64(x.device_cap_flags_ex)&capAtomicWrite != 0
		domain, errno := C.ibv_alloc_pd(c.dev)
		if domain == nil {
			p.err = cause(errno)
			return
		}
		defer C.ibv_dealloc_pd(domain)
		const depth = 16
		queue, errno := C.ibv_create_cq(c.dev, depth, nil, nil, 0)
		if queue == nil {
			p.err = cause(errno)
			return
		}
		defer C.ibv_destroy_cq(queue)
		p.caps = probeServices(domain, queue) | probeZeroBased(domain)
		if C.shim_resize_cq(queue, 2*depth) == 0 {
			p.caps |= verbs.CapResizeCQ
		}
		if hasCM() {
			p.caps |= verbs.CapCM
		}
		p.inline = inlineLimit(domain, queue, p.caps)
	})
	return p, p.err
}

// probeServices returns the transport services for which queue pairs can be created.
func probeServices(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq) (caps verbs.Caps) {
	for _, s := range []struct {
		kind verbs.QPType
		cap  verbs.Caps
	}{{verbs.QPTypeRC, verbs.CapRC}, {verbs.QPTypeUC, verbs.CapUC}, {verbs.QPTypeUD, verbs.CapUD}} {
		const inline = 0
		if canCreateQP(domain, queue, s.kind, inline) {
			caps |= s.cap
		}
	}
	return caps
}

// canCreateQP reports whether a queue pair can be created with maxInline bytes of inline data.
func canCreateQP(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq, kind verbs.QPType, maxInline int) bool {
	attr := C.struct_ibv_qp_init_attr{send_cq: queue, recv_cq: queue, qp_type: uint32(kind)}
	attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge = 1, 1, 1, 1
	attr.cap.max_inline_data = C.uint32_t(maxInline)
	p := C.ibv_create_qp(domain, &attr)
	if p == nil {
		return false
	}
	C.ibv_destroy_qp(p)
	return true
}

// inlineLimit returns the maximum of inline data with which a queue pair can be created: one of RC
// or, on a device without RC, of UD.
func inlineLimit(domain *C.struct_ibv_pd, queue *C.struct_ibv_cq, caps verbs.Caps) int {
	kind := verbs.QPTypeRC
	if !caps.Has(verbs.CapRC) {
		kind = verbs.QPTypeUD
	}
	return sort.Search(maxProbedInline, func(n int) bool { return !canCreateQP(domain, queue, kind, n+1) })
}

// probeZeroBased returns CapZeroBased if a region with address 0 can be registered.
func probeZeroBased(domain *C.struct_ibv_pd) verbs.Caps {
	buf := BufferFor(0, 64)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	m := C.shim_reg_mr(domain, C.uintptr_t(uintptr(unsafe.Pointer(&buf[0]))), C.size_t(len(buf)), 0, C.IBV_ACCESS_LOCAL_WRITE|C.IBV_ACCESS_ZERO_BASED)
	if m == nil {
		return 0
	}
	C.ibv_dereg_mr(m)
	return verbs.CapZeroBased
}
