package testutil

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// FaultyDevice is a verbs device with a defect, for tests of programs that check their device: it
// reports wrong completions or corrupts memory. Set its Context before use.
type FaultyDevice struct {
	verbs.Context
	// Fault changes the completions of a successful poll.
	Fault Fault
	// Buffers is the first buffer of each posted request, by work request ID.
	Buffers map[uint64]verbs.SGE
	// Regions are the registered buffers.
	Regions []Region
	// Applied is set when the defect has taken effect.
	Applied bool
}

// Fault changes the completions of a poll.
type Fault func(d *FaultyDevice, wcs []verbs.WC) []verbs.WC

// Change changes completion i of a poll, or the completions around it.
type Change func(d *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC

// NewFaultyDevice returns a device with a defect. The caller sets Context, the underlying device.
func NewFaultyDevice(fault Fault) *FaultyDevice {
	return &FaultyDevice{Fault: fault, Buffers: map[uint64]verbs.SGE{}}
}

// Region is a registered buffer.
type Region struct {
	MR     verbs.MR
	Buf    []byte
	Public bool // peers may write to it
}

// Bytes returns the n bytes of registered memory at an address; nil if they are not registered.
func (d *FaultyDevice) Bytes(addr uint64, n int) []byte {
	for _, r := range d.Regions {
		if base := r.MR.Addr(); addr >= base && addr+uint64(n) <= base+uint64(len(r.Buf)) {
			return r.Buf[addr-base:][:n]
		}
	}
	return nil
}

// faultyCQ is a completion queue whose completions the defect changes.
type faultyCQ struct {
	verbs.CQ
	d       *FaultyDevice
	pending []verbs.WC // completions to return, after the defect
}

// Poll implements verbs.CQ. The fault may change, hold back or add completions; later polls return
// those that do not fit.
func (c *faultyCQ) Poll(into []verbs.WC) (int, error) {
	got := make([]verbs.WC, len(into))
	n, err := c.CQ.Poll(got)
	if n > 0 {
		c.pending = append(c.pending, c.d.Fault(c.d, got[:n])...)
	}
	n = copy(into, c.pending)
	c.pending = c.pending[n:]
	return n, err
}

type faultyPD struct {
	verbs.PD
	d *FaultyDevice
}

// RegMR implements verbs.PD, and records the region and whether peers may write to it.
func (p *faultyPD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	mr, err := p.PD.RegMR(in)
	if err == nil {
		p.d.Regions = append(p.d.Regions, Region{mr, in.Buf, in.Access&verbs.AccessRemoteWrite != 0})
	}
	return mr, err
}

type faultyQP struct {
	verbs.QP
	d *FaultyDevice
}

// PostRecv implements verbs.QP, and records the first buffer of each request.
func (q *faultyQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.d.Buffers[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostRecv(wrs)
}

// PostSend implements verbs.QP, and records the first buffer of each request.
func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.d.Buffers[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostSend(wrs)
}

// AllocPD implements verbs.Context. The protection domain records its regions.
func (d *FaultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Context.AllocPD()
	return &faultyPD{pd, d}, err
}

// CreateCQ implements verbs.Context. The completion queue has the defect.
func (d *FaultyDevice) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := d.Context.CreateCQ(in)
	return &faultyCQ{CQ: cq, d: d}, err
}

// CreateQP implements verbs.Context. The underlying device gets its own PD and CQs instead of their
// wrappers, and the new queue pair records buffers.
func (d *FaultyDevice) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	in.SendCQ, in.RecvCQ, in.PD = unwrapCQ(in.SendCQ), unwrapCQ(in.RecvCQ), unwrapPD(in.PD)
	q, err := d.Context.CreateQP(in)
	if err != nil {
		return nil, err
	}
	return &faultyQP{q, d}, nil
}

// CreateSRQ implements verbs.Context. It unwraps the objects of in for the underlying device.
func (d *FaultyDevice) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.CQ, in.PD = unwrapCQ(in.CQ), unwrapPD(in.PD)
	return d.Context.CreateSRQ(in)
}

// unwrapCQ returns the underlying device's completion queue.
func unwrapCQ(cq verbs.CQ) verbs.CQ {
	if c, ok := cq.(*faultyCQ); ok {
		return c.CQ
	}
	return cq
}

// unwrapPD returns the underlying device's protection domain.
func unwrapPD(pd verbs.PD) verbs.PD {
	if p, ok := pd.(*faultyPD); ok {
		return p.PD
	}
	return pd
}

// unwrappingCM, unwrappingListener and unwrappingRequest wrap the connection manager's objects of
// the underlying device. They take queue pairs of the faulty device and unwrap them.
type (
	unwrappingCM       struct{ verbs.CM }
	unwrappingListener struct{ verbs.Listener }
	unwrappingRequest  struct{ verbs.ConnRequest }
)

// CM implements verbs.Context. The connection manager unwraps queue pairs before it passes them to
// the underlying device.
func (d *FaultyDevice) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	if err != nil {
		return nil, err
	}
	return unwrappingCM{m}, nil
}

// Listen implements verbs.CM. The listener's requests unwrap the queue pair that accepts them.
func (m unwrappingCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	l, err := m.CM.Listen(addr, space, backlog)
	return unwrappingListener{l}, err
}

// GetRequest implements verbs.Listener. The request unwraps the queue pair that accepts it.
func (l unwrappingListener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	r, err := l.Listener.GetRequest(timeout)
	return unwrappingRequest{r}, err
}

// Accept implements verbs.ConnRequest, with the unwrapped queue pair.
func (r unwrappingRequest) Accept(qp verbs.QP, p verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	return r.ConnRequest.Accept(unwrapQP(qp), p, timeout)
}

// Connect implements verbs.CM, with the unwrapped queue pair.
func (m unwrappingCM) Connect(qp verbs.QP, addr netip.AddrPort, p verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	return m.CM.Connect(unwrapQP(qp), addr, p, timeout)
}

// unwrapQP returns the underlying device's queue pair.
func unwrapQP(qp verbs.QP) verbs.QP {
	if q, ok := qp.(*faultyQP); ok {
		return q.QP
	}
	return qp
}

// Nth returns a fault that applies change once: to the completion that match accepts after it has
// accepted n others.
func Nth(n int, match func(verbs.WC) bool, change Change) Fault {
	return func(d *FaultyDevice, wcs []verbs.WC) []verbs.WC {
		for i := range wcs {
			if d.Applied || !match(wcs[i]) {
				continue
			}
			if n--; n < 0 {
				d.Applied = true
				return change(d, wcs, i)
			}
		}
		return wcs
	}
}

// Field returns a change that calls f to change fields of the completion.
func Field(f func(*verbs.WC)) Change {
	return func(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		f(&wcs[i])
		return wcs
	}
}

// Duplicate is a change that reports a completion twice.
func Duplicate(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC { return append(wcs, wcs[i]) }

// Drop is a change that removes a completion.
func Drop(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	return slices.Delete(slices.Clone(wcs), i, i+1)
}

// FlipBit is a change that flips a bit in the middle of the data that a receive, read or atomic has
// written to its first buffer.
func FlipBit(d *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	buf := d.Buffers[wcs[i].WRID]
	n := int(buf.Length)
	if wcs[i].Opcode == verbs.WCOpRecv {
		n = min(n, int(wcs[i].ByteLen))
	}
	d.Bytes(buf.Addr, n)[n/2] ^= 4
	return wcs
}

// Swap returns a fault that swaps, once, two successive completions of a queue pair among those
// that match accepts. The first of the two comes after n other accepted completions.
func Swap(n int, match func(verbs.WC) bool) Fault {
	var held *verbs.WC // the first of the two, until the second arrives
	return func(d *FaultyDevice, wcs []verbs.WC) []verbs.WC {
		var out []verbs.WC
		for _, wc := range wcs {
			if !d.Applied && held == nil && match(wc) {
				if n--; n < 0 {
					held = &wc
					continue
				}
			}
			out = append(out, wc)
			if held != nil && !d.Applied && match(wc) && wc.QPN == held.QPN {
				d.Applied = true
				out = append(out, *held)
			}
		}
		return out
	}
}
