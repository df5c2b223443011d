package verbcalls

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// talk is what a program does with a device and with its sound peer, and what it
// notes of it.
type talk struct {
	*testing.T
	proc *sim.Proc
	log  []string
	dev  *side
	peer *side
}

// side is a device with the objects that most talks want.
type side struct {
	t    *talk
	d    verbs.Context
	addr netip.Addr
	pd   verbs.PD
	ch   verbs.CompChannel
	cq   verbs.CQ
	mr   verbs.MR
	buf  []byte
	qp   verbs.QP
}

func (c *talk) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

// tried notes what became of an attempt.
func (c *talk) tried(err error) {
	if err != nil {
		c.note("refused")
		return
	}
	c.note("taken")
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func (c *talk) side(d verbs.Context, addr netip.Addr) *side {
	c.Helper()
	s := &side{t: c, d: d, addr: addr, buf: make([]byte, 4096)}
	s.pd = must.Get(d.AllocPD())(c)
	s.ch = must.Get(d.CreateCompChannel())(c)
	s.cq = must.Get(d.CreateCQ(verbs.CQInit{Depth: 64, Channel: s.ch}))(c)
	s.mr = must.Get(s.pd.RegMR(verbs.MRInit{Buf: s.buf, Access: allAccess}))(c)
	s.qp = s.newQP(nil)
	return s
}

func (s *side) newQP(edit func(*verbs.QPInit)) verbs.QP {
	s.t.Helper()
	in := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	if edit != nil {
		edit(&in)
	}
	return must.Get(s.d.CreateQP(in))(s.t)
}

const (
	toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	toRTR  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	toRTS = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrMaxQPRdAtomic
)

// connect takes the queue pairs of both sides to RTS.
func (c *talk) connect() {
	c.Helper()
	for _, s := range []*side{c.dev, c.peer} {
		other := c.dev
		if s == c.dev {
			other = c.peer
		}
		a := verbs.QPAttr{
			State: verbs.QPStateInit, Port: 1, Access: allAccess, PathMTU: verbs.MTU1024, DestQPN: other.qp.QPN(),
			AH:    verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(other.addr), HopLimit: 64}},
			RQPSN: 7, SQPSN: 7, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 3, RNRRetry: 3,
		}
		must.Do(c, s.qp.Modify(a, toInit))
		a.State = verbs.QPStateRTR
		must.Do(c, s.qp.Modify(a, toRTR))
		a.State = verbs.QPStateRTS
		must.Do(c, s.qp.Modify(a, toRTS))
	}
}

// wr is a signaled request of eight bytes to the memory of the other side.
func (s *side) wr(id uint64, op verbs.WROpcode) verbs.SendWR {
	other := s.t.dev
	if s == other {
		other = s.t.peer
	}
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 0, 8)},
		Remote: verbs.Remote{Addr: other.mr.Addr(), RKey: other.mr.RKey()},
	}
}

func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); n != len(wrs) || err != nil {
		s.t.Fatalf("%d posted: %v", n, err)
	}
}

func (s *side) recv(ids ...uint64) {
	s.t.Helper()
	for _, id := range ids {
		must.Get(s.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 64, 64)}}}))(s.t)
	}
}

// send posts requests that may be refused: then it notes how many were taken, and why
// not the next.
func (s *side) send(wrs ...verbs.SendWR) {
	s.t.Helper()
	n, err := s.qp.PostSend(wrs)
	switch {
	case err == nil && n == len(wrs):
	case errors.Is(err, verbs.ErrInvalid):
		s.t.note("%d invalid", n)
	case errors.Is(err, verbs.ErrNoMemory):
		s.t.note("%d full", n)
	default:
		s.t.Fatalf("%d posted: %v", n, err)
	}
}

// datagrams gives the side a queue pair for datagrams that is ready.
func (s *side) datagrams() {
	s.t.Helper()
	s.qp = s.newQP(func(in *verbs.QPInit) { in.Type = verbs.QPTypeUD })
	a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: datagramKey}
	must.Do(s.t, s.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
	a.State = verbs.QPStateRTR
	must.Do(s.t, s.qp.Modify(a, verbs.QPAttrState))
	a.State = verbs.QPStateRTS
	must.Do(s.t, s.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrSQPSN))
}

const datagramKey = 0x11

// datagram is a signaled datagram of eight bytes to the other side, by an address
// handle of the domain.
func (s *side) datagram(id uint64, pd verbs.PD) verbs.SendWR {
	s.t.Helper()
	other := s.t.peer
	if s == other {
		other = s.t.dev
	}
	wr := s.wr(id, verbs.OpSend)
	ah := must.Get(pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(other.addr), HopLimit: 64}}))(s.t)
	wr.UD = verbs.UD{AH: ah, QPN: other.qp.QPN(), QKey: datagramKey}
	return wr
}

// aside lets something go on beside the talk.
func (c *talk) aside(f func()) {
	c.proc.World().Go("aside", func(*sim.Proc) error {
		f()
		return nil
	})
}

// done lets things happen and notes the completions, which are polled two by two.
func (s *side) done() {
	s.t.Helper()
	s.t.proc.Sleep(time.Millisecond)
	var wcs [2]verbs.WC
	for {
		n, err := s.cq.Poll(wcs[:])
		must.Do(s.t, err)
		if n == 0 {
			return
		}
		for _, wc := range wcs[:n] {
			s.t.note("%d %s %dB", wc.WRID, strings.TrimPrefix(wc.Status.String(), "IBV_WC_"), wc.ByteLen)
			if wc.Flags&verbs.WCWithInv != 0 {
				s.t.note("invalidated")
			}
			if wc.QPN != s.qp.QPN() {
				s.t.note("of nobody")
			}
		}
	}
}

// play holds a talk with a device that has defects.
func play(t *testing.T, q Defects, f func(*talk)) string {
	t.Helper()
	w := sim.New(sim.Config{})
	defer w.Close()
	addrs := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	port := func(a netip.Addr) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{a}, Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200}}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, port(addrs[0]), port(addrs[1]))
	if err != nil {
		t.Fatal(err)
	}
	a := must.Get(softroce.InWorld(w, pa, pa, softroce.Config{Name: "device"}))(t)
	b := must.Get(softroce.InWorld(w, pb, pb, softroce.Config{Name: "peer"}))(t)
	c := &talk{T: t}
	w.Go("program", func(p *sim.Proc) error {
		c.proc = p
		c.dev, c.peer = c.side(Device(a, q, p.Now), addrs[0]), c.side(b, addrs[1])
		f(c)
		return nil
	})
	must.Do(t, w.RunPrograms())
	return strings.Join(c.log, "; ")
}
