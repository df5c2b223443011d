package mpihost

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// gidTable is a device, and its provider, with a GID table and nothing else.
type gidTable struct {
	verbs.Context
	transport verbs.Transport
	gids      []verbs.GIDEntry
	closed    bool
}

func (d *gidTable) Name() string                         { return "fake" }
func (d *gidTable) Devices() ([]verbs.DeviceInfo, error) { return nil, nil }
func (d *gidTable) Open(string) (verbs.Context, error)   { return d, nil }
func (d *gidTable) Info() verbs.DeviceInfo               { return verbs.DeviceInfo{Transport: d.transport} }

func (d *gidTable) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{GIDs: len(d.gids) + 1}, nil
}

func (d *gidTable) QueryGID(_ uint8, i int) (verbs.GIDEntry, error) {
	if i == len(d.gids) {
		return verbs.GIDEntry{}, verbs.ErrNotFound
	}
	return d.gids[i], nil
}

func (d *gidTable) Close() error {
	d.closed = true
	return nil
}

// A RoCE device uses the RoCEv2 GID of the address of its NIC; the same address is also in RoCEv1 entries.
func TestDeviceUsesGIDOfAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.77.0.11")
	table := []verbs.GIDEntry{
		{GID: verbs.GIDFrom(netip.MustParseAddr("fe80::1")), Type: verbs.GIDTypeRoCEv2},
		{},
		{GID: verbs.GIDFrom(addr), Type: verbs.GIDTypeRoCEv1},
		{GID: verbs.GIDFrom(addr), Type: verbs.GIDTypeRoCEv2},
	}
	nic := must.Get(openDevice(&gidTable{gids: table}, NICJob{Name: "rxe0", Addr: addr}))(t)
	if nic.GIDIndex != 3 || nic.Addr != addr {
		t.Errorf("GID %d of %v", nic.GIDIndex, nic.Addr)
	}
	without := &gidTable{gids: table[:3]}
	if _, err := openDevice(without, NICJob{Addr: addr}); !errors.Is(err, verbs.ErrNotFound) || !without.closed {
		t.Errorf("a device without the GID: %v; closed is %v", err, without.closed)
	}
	iwarp := must.Get(openDevice(&gidTable{transport: verbs.TransportIWARP}, NICJob{Addr: addr}))(t)
	if iwarp.Addr != addr {
		t.Errorf("an iWARP device at %v", iwarp.Addr)
	}
}

// likeSIW is an iWARP device with the limits of the kernel's siw: a GID made from the MAC address, and
// completion queues that it cannot resize.
type likeSIW struct{ verbs.Context }

func (d likeSIW) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := d.Context.QueryDevice()
	a.Caps &^= verbs.CapResizeCQ
	return a, err
}

func (d likeSIW) QueryGID(uint8, int) (verbs.GIDEntry, error) {
	return verbs.GIDEntry{GID: verbs.GID{2, 0, 0x5e, 0x10}}, nil
}

func (d likeSIW) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	q, err := d.Context.CreateCQ(init)
	return fixedCQ{q}, err
}

func (d likeSIW) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	init.SendCQ, init.RecvCQ = init.SendCQ.(fixedCQ).CQ, init.RecvCQ.(fixedCQ).CQ
	return d.Context.CreateQP(init)
}

func (d likeSIW) CM() (verbs.CM, error) {
	cm, err := d.Context.CM()
	return flushingCM{cm, d.Context}, err
}

// flushingCM flushes the receives of a queue pair whose request is rejected before Connect returns.
type flushingCM struct {
	verbs.CM
	device verbs.Context
}

func (c flushingCM) Connect(qp verbs.QP, to netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	conn, err := c.CM.Connect(qp, to, param, timeout)
	if errors.Is(err, verbs.ErrRejected) {
		err = errors.Join(err, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		_, _ = c.device.WaitAsync(time.Millisecond) // time passes for the task that connects
	}
	return conn, err
}

type fixedCQ struct{ verbs.CQ }

func (fixedCQ) Resize(int) error { return verbs.ErrNotSupported }

// Ranks connect over devices that know no IP address and cannot resize completion queues, also when
// they need more entries than the completion queue of another NIC has at first. Requests of two ranks
// that cross are no loss.
func TestRanksUseDevicesLikeSIW(t *testing.T) {
	for _, design := range []carrier.Design{carrier.SendRecv, carrier.RingSRQ} {
		o := mpi.Options{Carrier: carrier.Config{Design: design}}
		must.Do(t, o.Collectives.UnmarshalText([]byte("alltoall=exchange"))) // of pairs, whose requests cross
		_, err := InWorld(Fabric{Ranks: 16, Provider: "softiwarp", Seed: 1}, func(e *transport.Env) error {
			e.NICs[0].Device = likeSIW{e.NICs[0].Device}
			return mpi.Run(e, o, func(w *mpi.World) error { return exchangeBytes(t, w) })
		})
		if err != nil {
			t.Errorf("%s: %v", design, err)
		}
	}
}

// exchangeBytes sends a byte from each rank to every other, all at once.
func exchangeBytes(t *testing.T, w *mpi.World) error {
	send, got := make([]byte, w.Size()), make([]byte, w.Size())
	for i := range send {
		send[i] = byte(10*w.Rank() + i)
	}
	if err := w.Alltoall(send, got); err != nil {
		return err
	}
	for i, b := range got {
		if b != byte(10*i+w.Rank()) {
			t.Errorf("rank %d received %d from rank %d", w.Rank(), b, i)
		}
	}
	return nil
}

// A rank of a program without libibverbs says how to build it.
func TestDeviceWithoutLibraryIsAnError(t *testing.T) {
	_, err := new(Process).openNIC(nil, NICJob{Name: "rxe0", Device: true})
	if err == nil || !strings.Contains(err.Error(), "rxe0") {
		t.Errorf("open a device that is not there: %v", err)
	}
}
