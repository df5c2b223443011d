package testutil

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// FaultyDevice is a verbs device with a defect, for tests of programs that check their
// device: it reports wrong completions or corrupts memory. Its Context must be set before it is used.
type FaultyDevice struct {
	verbs.Context
	// Fault changes the completions of a successful poll.
	Fault Fault
	// Buffers is the first buffer of each request, by work request ID.
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

// NewFaultyDevice returns a device with a defect.
func NewFaultyDevice(fault Fault) *FaultyDevice {
	return &FaultyDevice{Fault: fault, Buffers: map[uint64]verbs.SGE{}}
}

// Region is a registered buffer.
type Region struct {
	MR     verbs.MR
	Buf    []byte
	Public bool // peers may write to it
}

// Bytes returns n bytes of registered memory.
func (d *FaultyDevice) Bytes(addr uint64, n int) []byte {
	for _, r := range d.Regions {
		if base := r.MR.Addr(); addr >= base && addr+uint64(n) <= base+uint64(len(r.Buf)) {
			return r.Buf[addr-base:][:n]
		}
	}
	return nil
}

type faultyCQ struct {
	verbs.CQ
	d       *FaultyDevice
	pending []verbs.WC
}

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

func (q *faultyQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.d.Buffers[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostRecv(wrs)
}

// PostSend records the buffers of reads and atomics.
func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.d.Buffers[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostSend(wrs)
}

// AllocPD returns a protection domain that records its regions.
func (d *FaultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Context.AllocPD()
	return &faultyPD{pd, d}, err
}

// CreateCQ returns a completion queue with the defect.
func (d *FaultyDevice) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := d.Context.CreateCQ(in)
	return &faultyCQ{CQ: cq, d: d}, err
}

// CreateQP creates a queue pair on the objects of the wrapped device.
func (d *FaultyDevice) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	in.SendCQ, in.RecvCQ, in.PD = unwrapCQ(in.SendCQ), unwrapCQ(in.RecvCQ), unwrapPD(in.PD)
	q, err := d.Context.CreateQP(in)
	return &faultyQP{q, d}, err
}

// CreateSRQ creates an SRQ on the objects of the wrapped device.
func (d *FaultyDevice) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.CQ, in.PD = unwrapCQ(in.CQ), unwrapPD(in.PD)
	return d.Context.CreateSRQ(in)
}

func unwrapCQ(cq verbs.CQ) verbs.CQ {
	if c, ok := cq.(*faultyCQ); ok {
		return c.CQ
	}
	return cq
}

func unwrapPD(pd verbs.PD) verbs.PD {
	if p, ok := pd.(*faultyPD); ok {
		return p.PD
	}
	return pd
}

type unwrapCM struct{ verbs.CM }

// CM returns the connection manager of the wrapped device.
func (d *FaultyDevice) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	return unwrapCM{m}, err
}

type unwrapListener struct{ verbs.Listener }

type unwrapRequest struct{ verbs.ConnRequest }

func (m unwrapCM) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	n, err := m.CM.Listen(addr, space, backlog)
	return unwrapListener{n}, err
}

func (n unwrapListener) GetRequest(d time.Duration) (verbs.ConnRequest, error) {
	r, err := n.Listener.GetRequest(d)
	return unwrapRequest{r}, err
}

func (r unwrapRequest) Accept(qp verbs.QP, p verbs.ConnParam, d time.Duration) (verbs.Conn, error) {
	return r.ConnRequest.Accept(unwrapQP(qp), p, d)
}

func (m unwrapCM) Connect(qp verbs.QP, addr netip.AddrPort, p verbs.ConnParam, d time.Duration) (verbs.Conn, error) {
	return m.CM.Connect(unwrapQP(qp), addr, p, d)
}

func unwrapQP(qp verbs.QP) verbs.QP {
	if q, ok := qp.(*faultyQP); ok {
		return q.QP
	}
	return qp
}

// Nth applies change to the completion that matches after n others did, once.
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

// Field changes fields of a completion.
func Field(f func(*verbs.WC)) Change {
	return func(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		f(&wcs[i])
		return wcs
	}
}

// Again repeats a completion.
func Again(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC { return append(wcs, wcs[i]) }

// Drop removes a completion.
func Drop(_ *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	return append(append([]verbs.WC(nil), wcs[:i]...), wcs[i+1:]...)
}

// Spoil flips a bit of the data of a completion.
func Spoil(d *FaultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	s := d.Buffers[wcs[i].WRID]
	n := int(s.Length)
	if wcs[i].Opcode == verbs.WCOpRecv {
		n = min(n, int(wcs[i].ByteLen))
	}
	d.Bytes(s.Addr, n)[n/2] ^= 4
	return wcs
}

// Swapped swaps two completions of one queue pair that fit, after n others.
func Swapped(n int, match func(verbs.WC) bool) Fault {
	var held *verbs.WC
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
