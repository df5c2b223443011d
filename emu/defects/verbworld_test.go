package defects

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

// world is a simulated program with a defective device and a connected peer without defects. Its
// log has what the program saw.
type world struct {
	*testing.T
	proc *sim.Proc
	log  []string
	dev  *side
	peer *side
}

// side is a device with the objects of the program.
type side struct {
	w    *world
	d    verbs.Context
	addr netip.Addr
	pd   verbs.PD
	ch   verbs.CompChannel
	cq   verbs.CQ
	buf  []byte
	mr   verbs.MR
	qp   verbs.QP
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// noteResult notes whether a verb succeeded.
func (w *world) noteResult(err error) {
	if err != nil {
		w.note("refused")
		return
	}
	w.note("accepted")
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func (w *world) newSide(d verbs.Context, addr netip.Addr) *side {
	w.Helper()
	s := &side{w: w, d: d, addr: addr, buf: make([]byte, 4096)}
	s.pd = must.Get(d.AllocPD())(w)
	s.ch = must.Get(d.CreateCompChannel())(w)
	s.cq = must.Get(d.CreateCQ(verbs.CQInit{Depth: 64, Channel: s.ch}))(w)
	s.mr = must.Get(s.pd.RegMR(verbs.MRInit{Buf: s.buf, Access: allAccess}))(w)
	s.newQP(nil)
	return s
}

// newQP replaces the queue pair of the side.
func (s *side) newQP(srq verbs.SRQ) {
	s.w.Helper()
	s.qp = must.Get(s.d.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SRQ: srq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))(s.w)
}

const (
	toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	toRTR  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	toRTS = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrMaxQPRdAtomic
)

// connect moves the queue pairs of both sides to RTS.
func (w *world) connect() {
	w.Helper()
	for _, ends := range [][2]*side{{w.dev, w.peer}, {w.peer, w.dev}} {
		a := verbs.QPAttr{
			State: verbs.QPStateInit, Port: 1, Access: allAccess, PathMTU: verbs.MTU1024, DestQPN: ends[1].qp.QPN(),
			AH:    verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(ends[1].addr), HopLimit: 64}},
			RQPSN: 7, SQPSN: 7, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 3, RNRRetry: 3,
		}
		must.Do(w, ends[0].qp.Modify(a, toInit))
		a.State = verbs.QPStateRTR
		must.Do(w, ends[0].qp.Modify(a, toRTR))
		a.State = verbs.QPStateRTS
		must.Do(w, ends[0].qp.Modify(a, toRTS))
	}
}

// reconnect replaces both queue pairs and connects them.
func (w *world) reconnect(srq verbs.SRQ) {
	w.dev.newQP(srq)
	w.peer.newQP(nil)
	w.connect()
}

// wr is a signaled request of eight bytes to the memory of the other side.
func (s *side) wr(id uint64, op verbs.WROpcode) verbs.SendWR {
	other := s.w.dev
	if s == other {
		other = s.w.peer
	}
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 0, 8)},
		Remote: verbs.Remote{Addr: other.mr.Addr(), RKey: other.mr.RKey()},
	}
}

// post posts a request, which may be refused as invalid.
func (s *side) post(wr verbs.SendWR) {
	s.w.Helper()
	if _, err := s.qp.PostSend([]verbs.SendWR{wr}); errors.Is(err, verbs.ErrInvalid) {
		s.w.note("invalid")
	} else {
		must.Do(s.w, err)
	}
}

// completions waits and notes all completions.
func (s *side) completions() {
	s.w.Helper()
	s.w.proc.Sleep(time.Millisecond)
	var wcs [2]verbs.WC
	for {
		n, err := s.cq.Poll(wcs[:])
		must.Do(s.w, err)
		if n == 0 {
			return
		}
		for _, wc := range wcs[:n] {
			text := fmt.Sprintf("%d %s", wc.WRID, strings.TrimPrefix(wc.Status.String(), "IBV_WC_"))
			if wc.Flags&verbs.WCWithInv != 0 {
				text += " invalidated"
			}
			if wc.Flags&verbs.WCWithGRH != 0 {
				text += " GRH"
			}
			s.w.note("%s", text)
		}
	}
}

// events notes the asynchronous events of the next millisecond.
func (s *side) events() {
	for {
		e, err := s.d.WaitAsync(time.Millisecond)
		if err != nil {
			return
		}
		s.w.note("%s", strings.TrimPrefix(e.Type.String(), "IBV_EVENT_"))
	}
}

// run runs a program with a device that has defects, and returns its log.
func run(t *testing.T, q VerbDefects, program func(*world)) string {
	t.Helper()
	sw := sim.New(sim.Config{})
	defer sw.Close()
	addrs := []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	port := func(a netip.Addr) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{a}, Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200}}
	}
	pa, pb, err := sim.NewPair(sw, sim.NetConfig{}, port(addrs[0]), port(addrs[1]))
	must.Do(t, err)
	a := must.Get(softroce.InWorld(sw, pa, pa, softroce.Config{Name: "device"}))(t)
	b := must.Get(softroce.InWorld(sw, pb, pb, softroce.Config{Name: "peer"}))(t)
	w := &world{T: t}
	sw.Go("program", func(p *sim.Proc) error {
		w.proc = p
		w.dev, w.peer = w.newSide(WrapDevice(a, q, p.Now), addrs[0]), w.newSide(b, addrs[1])
		program(w)
		return nil
	})
	must.Do(t, sw.RunPrograms())
	return strings.Join(w.log, "; ")
}
