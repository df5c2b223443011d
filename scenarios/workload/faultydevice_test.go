package workload_test

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

type addrPort = netip.AddrPort

// faultyDevice is a device that reports wrong completions or corrupts memory, one defect at
// a time.
type faultyDevice struct {
	verbs.Context
	// lie changes the completions of a successful poll.
	lie func(l *faultyDevice, wcs []verbs.WC) []verbs.WC
	// recvs is the buffer of each receive, by work request ID.
	recvs map[uint64]verbs.SGE
	// regions are the registered buffers.
	regions []region
	told    bool
}

type region struct {
	mr     verbs.MR
	buf    []byte
	public bool // peers may write to it
}

// bytes returns n bytes of registered memory.
func (l *faultyDevice) bytes(addr uint64, n int) []byte {
	for _, r := range l.regions {
		if base := r.mr.Addr(); addr >= base && addr+uint64(n) <= base+uint64(len(r.buf)) {
			return r.buf[addr-base:][:n]
		}
	}
	return nil
}

type faultyCQ struct {
	verbs.CQ
	l       *faultyDevice
	pending []verbs.WC
}

func (c *faultyCQ) Poll(into []verbs.WC) (int, error) {
	got := make([]verbs.WC, len(into))
	n, err := c.CQ.Poll(got)
	if n > 0 {
		c.pending = append(c.pending, c.l.lie(c.l, got[:n])...)
	}
	n = copy(into, c.pending)
	c.pending = c.pending[n:]
	return n, err
}

type faultyPD struct {
	verbs.PD
	l *faultyDevice
}

func (p *faultyPD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	mr, err := p.PD.RegMR(in)
	if err == nil {
		p.l.regions = append(p.l.regions, region{mr, in.Buf, in.Access&verbs.AccessRemoteWrite != 0})
	}
	return mr, err
}

type faultyQP struct {
	verbs.QP
	l *faultyDevice
}

func (q *faultyQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.l.recvs[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostRecv(wrs)
}

// PostSend records the buffers of reads and atomics.
func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.l.recvs[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostSend(wrs)
}

func (l *faultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := l.Context.AllocPD()
	return &faultyPD{pd, l}, err
}

func (l *faultyDevice) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := l.Context.CreateCQ(in)
	return &faultyCQ{CQ: cq, l: l}, err
}

func (l *faultyDevice) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	if c, ok := in.SendCQ.(*faultyCQ); ok {
		in.SendCQ = c.CQ
	}
	if c, ok := in.RecvCQ.(*faultyCQ); ok {
		in.RecvCQ = c.CQ
	}
	if p, ok := in.PD.(*faultyPD); ok {
		in.PD = p.PD
	}
	q, err := l.Context.CreateQP(in)
	return &faultyQP{q, l}, err
}

// Calls pass their queue pairs to the connection manager.

type unwrapCM struct{ verbs.CM }

func (l *faultyDevice) CM() (verbs.CM, error) {
	m, err := l.Context.CM()
	return unwrapCM{m}, err
}

type unwrapListener struct{ verbs.Listener }

type unwrapRequest struct{ verbs.ConnRequest }

func (m unwrapCM) Listen(addr addrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
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

func (m unwrapCM) Connect(qp verbs.QP, addr addrPort, p verbs.ConnParam, d time.Duration) (verbs.Conn, error) {
	return m.CM.Connect(unwrapQP(qp), addr, p, d)
}

func unwrapQP(qp verbs.QP) verbs.QP {
	if q, ok := qp.(*faultyQP); ok {
		return q.QP
	}
	return qp
}

// nth changes the n-th completion that fits.
func nth(n int, fits func(verbs.WC) bool, lie func(l *faultyDevice, wcs []verbs.WC, i int) []verbs.WC) func(*faultyDevice, []verbs.WC) []verbs.WC {
	return func(l *faultyDevice, wcs []verbs.WC) []verbs.WC {
		for i := range wcs {
			if l.told || !fits(wcs[i]) {
				continue
			}
			if n--; n < 0 {
				l.told = true
				return lie(l, wcs, i)
			}
		}
		return wcs
	}
}

func message(wc verbs.WC) bool {
	return wc.Opcode == verbs.WCOpRecv && wc.ByteLen > 0 && wc.Status == verbs.WCSuccess
}

func announced(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecvRDMAWithImm }

func fetched(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRDMARead }

func added(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpFetchAdd }

func sent(wc verbs.WC) bool {
	return wc.Opcode < verbs.WCOpRecv && wc.Opcode != verbs.WCOpBindMW && wc.Status == verbs.WCSuccess
}

func change(f func(*verbs.WC)) func(*faultyDevice, []verbs.WC, int) []verbs.WC {
	return func(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		f(&wcs[i])
		return wcs
	}
}

func again(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC { return append(wcs, wcs[i]) }

func drop(_ *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	return append(append([]verbs.WC(nil), wcs[:i]...), wcs[i+1:]...)
}

// spoil flips a bit of the data of a completion.
func spoil(l *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
	s := l.recvs[wcs[i].WRID]
	n := int(s.Length)
	if wcs[i].Opcode == verbs.WCOpRecv {
		n = min(n, int(wcs[i].ByteLen))
	}
	l.bytes(s.Addr, n)[n/2] ^= 4
	return wcs
}

// stale clears data, as if it had not been written.
func stale(of func(l *faultyDevice, wc verbs.WC) []byte) func(*faultyDevice, []verbs.WC, int) []verbs.WC {
	return func(l *faultyDevice, wcs []verbs.WC, i int) []verbs.WC {
		b := of(l, wcs[i])
		for k := len(b) / 2; k < len(b)/2+16; k++ {
			b[k] = 0
		}
		return wcs
	}
}

// inPublic flips a bit in memory that peers write to: in the guard before the slots, or at
// the same place of every slot.
func inPublic(at int) func(*faultyDevice, []verbs.WC, int) []verbs.WC {
	return func(l *faultyDevice, wcs []verbs.WC, _ int) []verbs.WC {
		for _, r := range l.regions {
			if !r.public || len(r.buf) <= at {
				continue
			}
			for i := at; i < len(r.buf)-64; i += 2048 {
				r.buf[i] ^= 1
				if at < 64 {
					break
				}
			}
		}
		return wcs
	}
}

// inWord changes the word of the atomics.
func inWord(l *faultyDevice, wcs []verbs.WC, _ int) []verbs.WC {
	for _, r := range l.regions {
		if len(r.buf) == 8 {
			r.buf[0] += 5
		}
	}
	return wcs
}

// swapped swaps two completions of one queue pair.
func swapped(n int, fits func(verbs.WC) bool) func(*faultyDevice, []verbs.WC) []verbs.WC {
	var held *verbs.WC
	return func(l *faultyDevice, wcs []verbs.WC) []verbs.WC {
		var out []verbs.WC
		for _, wc := range wcs {
			if !l.told && held == nil && fits(wc) {
				if n--; n < 0 {
					held = &wc
					continue
				}
			}
			out = append(out, wc)
			if held != nil && !l.told && fits(wc) && wc.QPN == held.QPN {
				l.told = true
				out = append(out, *held)
			}
		}
		return out
	}
}
