package workload_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

type addrPort = netip.AddrPort

// liar is a device that tells untruths about completions and memory, one kind
// at a time: each must be found out.
type liar struct {
	verbs.Context
	// lie changes the completions of a poll that found some.
	lie func(l *liar, wcs []verbs.WC) []verbs.WC
	// recvs is where each receive puts its message, by work request ID.
	recvs map[uint64]verbs.SGE
	// regions are the registered bytes.
	regions []region
	told    bool
}

type region struct {
	mr     verbs.MR
	buf    []byte
	public bool // peers may write to it
}

// bytes are those of registered memory.
func (l *liar) bytes(addr uint64, n int) []byte {
	for _, r := range l.regions {
		if base := r.mr.Addr(); addr >= base && addr+uint64(n) <= base+uint64(len(r.buf)) {
			return r.buf[addr-base:][:n]
		}
	}
	return nil
}

type liarCQ struct {
	verbs.CQ
	l       *liar
	pending []verbs.WC
}

func (c *liarCQ) Poll(into []verbs.WC) (int, error) {
	got := make([]verbs.WC, len(into))
	n, err := c.CQ.Poll(got)
	if n > 0 {
		c.pending = append(c.pending, c.l.lie(c.l, got[:n])...)
	}
	n = copy(into, c.pending)
	c.pending = c.pending[n:]
	return n, err
}

type liarPD struct {
	verbs.PD
	l *liar
}

func (p *liarPD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	mr, err := p.PD.RegMR(in)
	if err == nil {
		p.l.regions = append(p.l.regions, region{mr, in.Buf, in.Access&verbs.AccessRemoteWrite != 0})
	}
	return mr, err
}

type liarQP struct {
	verbs.QP
	l *liar
}

func (q *liarQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.l.recvs[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostRecv(wrs)
}

// PostSend keeps in mind where reads and atomics put what they bring.
func (q *liarQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for _, wr := range wrs {
		if len(wr.SGL) > 0 {
			q.l.recvs[wr.WRID] = wr.SGL[0]
		}
	}
	return q.QP.PostSend(wrs)
}

func (l *liar) AllocPD() (verbs.PD, error) {
	pd, err := l.Context.AllocPD()
	return &liarPD{pd, l}, err
}

func (l *liar) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := l.Context.CreateCQ(in)
	return &liarCQ{CQ: cq, l: l}, err
}

func (l *liar) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	if c, ok := in.SendCQ.(*liarCQ); ok {
		in.SendCQ = c.CQ
	}
	if c, ok := in.RecvCQ.(*liarCQ); ok {
		in.RecvCQ = c.CQ
	}
	if p, ok := in.PD.(*liarPD); ok {
		in.PD = p.PD
	}
	q, err := l.Context.CreateQP(in)
	return &liarQP{q, l}, err
}

// Calls hand their queue pairs to the connection manager.

type liarCM struct{ verbs.CM }

func (l *liar) CM() (verbs.CM, error) {
	m, err := l.Context.CM()
	return liarCM{m}, err
}

type liarListener struct{ verbs.Listener }

type liarRequest struct{ verbs.ConnRequest }

func (m liarCM) Listen(addr addrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	n, err := m.CM.Listen(addr, space, backlog)
	return liarListener{n}, err
}

func (n liarListener) Next(d time.Duration) (verbs.ConnRequest, error) {
	r, err := n.Listener.Next(d)
	return liarRequest{r}, err
}

func (r liarRequest) Accept(qp verbs.QP, p verbs.ConnParam, d time.Duration) (verbs.Conn, error) {
	return r.ConnRequest.Accept(honest(qp), p, d)
}

func (m liarCM) Connect(qp verbs.QP, addr addrPort, p verbs.ConnParam, d time.Duration) (verbs.Conn, error) {
	return m.CM.Connect(honest(qp), addr, p, d)
}

func honest(qp verbs.QP) verbs.QP {
	if q, ok := qp.(*liarQP); ok {
		return q.QP
	}
	return qp
}

// nth lies about one completion that fits, the n-th.
func nth(n int, fits func(verbs.WC) bool, lie func(l *liar, wcs []verbs.WC, i int) []verbs.WC) func(*liar, []verbs.WC) []verbs.WC {
	return func(l *liar, wcs []verbs.WC) []verbs.WC {
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

func change(f func(*verbs.WC)) func(*liar, []verbs.WC, int) []verbs.WC {
	return func(_ *liar, wcs []verbs.WC, i int) []verbs.WC {
		f(&wcs[i])
		return wcs
	}
}

func again(_ *liar, wcs []verbs.WC, i int) []verbs.WC { return append(wcs, wcs[i]) }

func drop(_ *liar, wcs []verbs.WC, i int) []verbs.WC {
	return append(append([]verbs.WC(nil), wcs[:i]...), wcs[i+1:]...)
}

// spoil flips a bit of what a completion brought.
func spoil(l *liar, wcs []verbs.WC, i int) []verbs.WC {
	s := l.recvs[wcs[i].WRID]
	n := int(s.Length)
	if wcs[i].Opcode == verbs.WCOpRecv {
		n = min(n, int(wcs[i].ByteLen))
	}
	l.bytes(s.Addr, n)[n/2] ^= 4
	return wcs
}

// stale wipes bytes, as if the data of this message had never been written.
func stale(of func(l *liar, wc verbs.WC) []byte) func(*liar, []verbs.WC, int) []verbs.WC {
	return func(l *liar, wcs []verbs.WC, i int) []verbs.WC {
		b := of(l, wcs[i])
		for k := len(b) / 2; k < len(b)/2+16; k++ {
			b[k] = 0
		}
		return wcs
	}
}

// inPublic flips a bit in memory that peers write to: in the guard before the
// slots, or at the same place of every slot.
func inPublic(at int) func(*liar, []verbs.WC, int) []verbs.WC {
	return func(l *liar, wcs []verbs.WC, _ int) []verbs.WC {
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

// inWord changes the word that atomics work on.
func inWord(l *liar, wcs []verbs.WC, _ int) []verbs.WC {
	for _, r := range l.regions {
		if len(r.buf) == 8 {
			r.buf[0] += 5
		}
	}
	return wcs
}

// swapped exchanges two completions of one queue pair.
func swapped(n int, fits func(verbs.WC) bool) func(*liar, []verbs.WC) []verbs.WC {
	var held *verbs.WC
	return func(l *liar, wcs []verbs.WC) []verbs.WC {
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

func TestEveryLieIsFoundOut(t *testing.T) {
	stream := func(op string) workload.Config {
		return workload.Config{Kind: workload.Stream, Op: op, Messages: 60, Bytes: 2000, Depth: 8}
	}
	kind := func(k workload.Kind, op string) workload.Config {
		return workload.Config{Kind: k, Op: op, Messages: 60, Bytes: 2000, Depth: 8}
	}
	datagrams := stream(workload.OpSend)
	datagrams.Services, datagrams.Bytes = []string{workload.ServiceUD}, 900
	tiny := stream(workload.OpSend)
	tiny.Bytes = 3
	random := workload.Config{Kind: workload.Random, Services: []string{workload.ServiceRC}, Messages: 100, Bytes: 2000}
	calls := workload.Config{Kind: workload.Calls, Messages: 20, Bytes: 2000}
	one := func(f func(*verbs.WC)) func(*liar, []verbs.WC, int) []verbs.WC { return change(f) }
	for _, tc := range []struct {
		name string
		rank int // who has the liar
		cfg  workload.Config
		lie  func(*liar, []verbs.WC) []verbs.WC
		want string
	}{
		{"damaged", 1, stream(workload.OpSend), nth(20, message, spoil), "byte 1000 of 2000"},
		{"damaged datagram", 1, datagrams, nth(20, message, spoil), "of 900 is"},
		{"not written", 1, stream(workload.OpSend), nth(20, message, stale(func(l *liar, wc verbs.WC) []byte { return l.bytes(l.recvs[wc.WRID].Addr, 2000) })), "of 2000 is"},
		{"length", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.ByteLen-- })), "has 1999 bytes, not 2000"},
		{"received twice", 1, stream(workload.OpSend), nth(20, message, again), "completed"},
		{"datagram twice", 1, datagrams, nth(20, message, again), "completed"},
		{"lost", 1, stream(workload.OpSend), nth(20, message, drop), "before"},
		{"last lost", 1, stream(workload.OpSend), nth(59, message, drop), "never arrived"},
		{"out of order", 1, stream(workload.OpSend), swapped(20, message), "before"},
		{"tiny out of order", 1, tiny, swapped(20, message), "before"},
		{"tiny damaged", 1, tiny, nth(20, message, spoil), "of 3 is"},
		{"another queue pair", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.QPN ^= 1 << 20 })), "queue pair"},
		{"another receive", 1, stream(workload.OpSend), nth(20, message, one(func(wc *verbs.WC) { wc.WRID ^= 1 })), "receive"},
		{"sent twice", 0, stream(workload.OpSend), nth(3, sent, again), "completed"},
		{"another request", 0, stream(workload.OpSend), nth(3, sent, one(func(wc *verbs.WC) { wc.WRID += 1000 })), "completed"},
		{"another operation", 0, stream(workload.OpSend), nth(3, sent, one(func(wc *verbs.WC) { wc.Opcode = verbs.WCOpRDMARead })), "completed as"},
		{"credit", 0, stream(workload.OpSend), nth(1, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRecv }, one(func(wc *verbs.WC) { wc.Imm += 50 })), "of"},

		{"slot damaged", 1, stream(workload.OpWrite), nth(2, announced, inPublic(64+1000)), "of 2000 is"},
		{"guard damaged", 1, stream(workload.OpWrite), nth(2, announced, inPublic(5)), "memory of host1"},
		{"announced twice", 1, stream(workload.OpWrite), nth(2, announced, again), "completed"},
		{"announced too much", 1, stream(workload.OpWrite), nth(2, announced, one(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"announcement lost at the end", 1, stream(workload.OpWrite), func(l *liar, wcs []verbs.WC) []verbs.WC {
			var out []verbs.WC
			for _, wc := range wcs {
				if announced(wc) && wc.Imm == 60 {
					l.told = true
					continue
				}
				out = append(out, wc)
			}
			return out
		}, "never arrived"},

		{"read damaged", 1, stream(workload.OpRead), nth(2, fetched, spoil), "of 2000 is"},
		{"read cut short", 1, stream(workload.OpRead), nth(2, fetched, one(func(wc *verbs.WC) { wc.ByteLen-- })), "with 1999 bytes"},
		{"read twice", 1, stream(workload.OpRead), nth(2, fetched, again), "completed"},
		{"source damaged", 0, stream(workload.OpRead), nth(0, sent, inPublic(5)), "memory of host0"},

		{"ping damaged", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"pong damaged", 0, kind(workload.PingPong, workload.OpWrite), nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"incast damaged", 0, kind(workload.Incast, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"incast out of order", 0, kind(workload.Incast, workload.OpSend), swapped(20, message), "before"},
		{"all to all damaged", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, spoil), "of 2000 is"},
		{"all to all lost", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, drop), "before"},
		{"border damaged", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inPublic(64+1000)), "of 2000 is"},
		{"border read damaged", 1, kind(workload.Halo, workload.OpRead), nth(2, fetched, spoil), "of 2000 is"},
		{"word changed", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inWord), "atomic"},
		{"atomic's result changed", 1, kind(workload.Halo, workload.OpWrite), nth(20, added, spoil), "atomic"},

		{"ping twice", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, again), "twice"},
		{"ping lost", 1, kind(workload.PingPong, workload.OpSend), nth(20, message, drop), "received 20 of 60, waits for more"},
		{"pong announced twice", 0, kind(workload.PingPong, workload.OpWrite), nth(20, announced, again), "announced"},
		{"incast twice", 0, kind(workload.Incast, workload.OpSend), nth(20, message, again), "twice"},
		{"incast lost", 0, kind(workload.Incast, workload.OpSend), nth(20, message, drop), "never arrived"},
		{"all to all twice", 2, kind(workload.AllToAll, workload.OpSend), nth(20, message, again), "twice"},
		{"all to all out of order", 2, kind(workload.AllToAll, workload.OpSend), swapped(20, message), "before"},
		{"all to all, guard damaged", 2, kind(workload.AllToAll, workload.OpWrite), nth(2, announced, inPublic(5)), "memory of host2"},
		{"border twice", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, again), "announced"},
		{"border too early", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, one(func(wc *verbs.WC) { wc.Imm++ })), "message"},
		{"guard of a border damaged", 1, kind(workload.Halo, workload.OpWrite), nth(20, announced, inPublic(5)), "memory of host1"},
		{"call twice", 1, calls, nth(7, message, again), "message 8"},

		{"call damaged", 1, calls, nth(7, message, spoil), "message 7"},
		{"answer damaged", 0, calls, nth(7, message, spoil), "message 7"},
		{"call cut short", 1, calls, nth(7, message, one(func(wc *verbs.WC) { wc.ByteLen-- })), "bytes, not"},
		{"random damaged", 1, random, nth(0, func(wc verbs.WC) bool { return wc.Opcode == verbs.WCOpRDMARead && wc.ByteLen > 50 }, one(func(wc *verbs.WC) { wc.ByteLen-- })), "completion with"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 4, 1)
			l := &liar{lie: tc.lie, recvs: map[uint64]verbs.SGE{}}
			r.disguise = func(host int, dev verbs.Context) verbs.Context {
				if host != tc.rank {
					return dev
				}
				l.Context = dev
				return l
			}
			r.patience = 100 * time.Millisecond
			r.start(tc.cfg)
			if err := r.RunPrograms(); err != nil {
				t.Fatal(err)
			}
			if !l.told {
				t.Fatal("the lie was never told")
			}
			var all []string
			for rank, p := range r.reports {
				all = append(all, p.Violations...)
				if r.errs[rank] != nil {
					all = append(all, r.errs[rank].Error())
				}
			}
			if found := strings.Join(all, "\n"); !strings.Contains(found, tc.want) {
				t.Errorf("violations %q, want one that says %q", found, tc.want)
			} else {
				t.Log(all[0])
			}
		})
	}
}
