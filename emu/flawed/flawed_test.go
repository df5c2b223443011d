package flawed

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
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

func (c *talk) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// tried notes what became of an attempt.
func (c *talk) tried(err error) {
	if err != nil {
		c.note("refused")
		return
	}
	c.note("taken")
}

func made[T any](c *talk) func(T, error) T {
	return func(x T, err error) T {
		c.Helper()
		c.must(err)
		return x
	}
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func (c *talk) side(d verbs.Context, addr netip.Addr) *side {
	c.Helper()
	s := &side{t: c, d: d, addr: addr, buf: make([]byte, 4096)}
	s.pd = made[verbs.PD](c)(d.AllocPD())
	s.ch = made[verbs.CompChannel](c)(d.CreateCompChannel())
	s.cq = made[verbs.CQ](c)(d.CreateCQ(verbs.CQInit{Depth: 64, Channel: s.ch}))
	s.mr = made[verbs.MR](c)(s.pd.RegMR(verbs.MRInit{Buf: s.buf, Access: allAccess}))
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
	return made[verbs.QP](s.t)(s.d.CreateQP(in))
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
		c.must(s.qp.Modify(a, toInit))
		a.State = verbs.QPStateRTR
		c.must(s.qp.Modify(a, toRTR))
		a.State = verbs.QPStateRTS
		c.must(s.qp.Modify(a, toRTS))
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
		if _, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: []verbs.SGE{verbs.SGEOf(s.mr, 64, 64)}}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// done lets things happen and notes the completions, which are polled two by two.
func (s *side) done() {
	s.t.Helper()
	s.t.proc.Sleep(time.Millisecond)
	var wcs [2]verbs.WC
	for {
		n, err := s.cq.Poll(wcs[:])
		s.t.must(err)
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

// quirkTalks has, for every quirk, a talk that tells a flawed device from a sound
// one.
var quirkTalks = map[string]struct {
	talk          func(*talk)
	sound, flawed string
}{
	"SparseCompletions": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMARead))
			c.dev.recv(2, 3)
			imm := c.peer.wr(0, verbs.OpRDMAWriteImm)
			c.peer.post(imm)
			bad := c.dev.wr(4, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.done()
			c.dev.post(bad)
			c.dev.done()
		},
		sound:  "2 SUCCESS 8B; 1 SUCCESS 8B; 4 REM_ACCESS_ERR 0B; 3 WR_FLUSH_ERR 0B",
		flawed: "2 SUCCESS 0B; 1 SUCCESS 0B; 0 REM_ACCESS_ERR 0B; of nobody; 0 WR_FLUSH_ERR 0B; of nobody",
	},
	"FlushReversed": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(1, 2)
			bad := c.dev.wr(4, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.post(c.dev.wr(3, verbs.OpRDMAWrite), bad, c.dev.wr(5, verbs.OpRDMAWrite))
			c.dev.done()
		},
		sound:  "3 SUCCESS 0B; 4 REM_ACCESS_ERR 0B; 5 WR_FLUSH_ERR 0B; 1 WR_FLUSH_ERR 0B; 2 WR_FLUSH_ERR 0B",
		flawed: "3 SUCCESS 0B; 2 WR_FLUSH_ERR 0B; 1 WR_FLUSH_ERR 0B; 5 WR_FLUSH_ERR 0B; 4 REM_ACCESS_ERR 0B",
	},
	"FenceIgnored": {
		talk:   func(c *talk) { c.note("same: %v", c.overtaken(verbs.SendFence)) },
		sound:  "same: false",
		flawed: "same: true",
	},
	"AlwaysFenced": {
		talk:   func(c *talk) { c.note("same: %v", c.overtaken(0)) },
		sound:  "same: true",
		flawed: "same: false",
	},
	"SignalAllIgnored": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SignalAll = true })
			c.connect()
			quiet := c.dev.wr(1, verbs.OpRDMAWrite)
			quiet.Flags = 0
			c.dev.post(quiet, c.dev.wr(2, verbs.OpRDMAWrite))
			c.dev.done()
		},
		sound:  "1 SUCCESS 0B; 2 SUCCESS 0B",
		flawed: "2 SUCCESS 0B",
	},
	"ArmsWithoutChannel": {
		talk: func(c *talk) {
			cq := made[verbs.CQ](c)(c.dev.d.CreateCQ(verbs.CQInit{Depth: 1}))
			c.tried(cq.Arm(false))
		},
		sound:  "refused",
		flawed: "taken",
	},
	"SRQUnchecked": {
		talk: func(c *talk) {
			srq := made[verbs.SRQ](c)(c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 2, MaxSGE: 1}))
			c.tried(srq.Modify(verbs.SRQAttr{Limit: 3}, verbs.SRQLimit))
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SRQ = srq })
			c.connect()
			_, err := c.dev.qp.PostRecv(make([]verbs.RecvWR, 1))
			c.tried(err)
		},
		sound:  "refused; refused",
		flawed: "taken; taken",
	},
	"QueryStale": {
		talk: func(c *talk) {
			c.connect()
			bad := c.dev.wr(1, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.post(bad)
			c.proc.Sleep(time.Millisecond)
			a, err := c.dev.qp.Query()
			c.must(err)
			c.note("%v, %v, %d", a.State, a.CurState, a.SQPSN)
		},
		sound:  "IBV_QPS_ERR, IBV_QPS_ERR, 8",
		flawed: "IBV_QPS_RTS, IBV_QPS_RTS, 7",
	},
	"LimitsOverstated": {
		talk: func(c *talk) {
			claims, err := c.dev.d.QueryDevice()
			c.must(err)
			truth, err := c.peer.d.QueryDevice()
			c.must(err)
			c.note("%d %d %d", claims.MaxAH/truth.MaxAH, claims.MaxMW/truth.MaxMW, claims.MaxQP/truth.MaxQP)
		},
		sound:  "1 1 1",
		flawed: "2 2 2",
	},
	"XRCTargetDies": {
		talk: func(c *talk) {
			x := made[verbs.XRCD](c)(c.dev.d.OpenXRCD())
			target := made[verbs.QP](c)(c.dev.d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))
			other := made[verbs.QP](c)(c.dev.d.OpenQP(x, target.QPN()))
			c.must(target.Close())
			_, err := other.Query()
			c.tried(err)
		},
		sound:  "taken",
		flawed: "refused",
	},
}

// overtaken reports whether a SEND with the given flags arrives before a READ
// posted ahead of it is answered: whether both leave at the same time.
func (c *talk) overtaken(flags verbs.SendFlags) bool {
	c.Helper()
	c.connect()
	c.peer.recv(1)
	send := c.dev.wr(2, verbs.OpSend)
	send.Flags |= flags
	c.dev.post(c.dev.wr(1, verbs.OpRDMARead), send)
	var wc [1]verbs.WC
	for n := 0; n == 0; {
		c.proc.Sleep(100 * time.Nanosecond)
		n = made[int](c)(c.peer.cq.Poll(wc[:]))
	}
	return made[int](c)(c.dev.cq.Poll(wc[:])) == 0 // or the READ has completed first
}

// play holds a talk with a device that has quirks.
func play(t *testing.T, q Quirks, f func(*talk)) string {
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
	a, err := softroce.InWorld(w, pa, pa, softroce.Config{Name: "device"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := softroce.InWorld(w, pb, pb, softroce.Config{Name: "peer"})
	if err != nil {
		t.Fatal(err)
	}
	c := &talk{T: t}
	w.Go("program", func(p *sim.Proc) error {
		c.proc = p
		c.dev, c.peer = c.side(Device(a, q), addrs[0]), c.side(b, addrs[1])
		f(c)
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(c.log, "; ")
}

func TestQuirksMisbehaveAsDocumented(t *testing.T) {
	var names []string
	for _, info := range AllQuirks() {
		names = append(names, info.Name)
		c, ok := quirkTalks[info.Name]
		if !ok || c.sound == c.flawed {
			t.Errorf("no talk tells %s from a sound device", info.Name)
			continue
		}
		t.Run(info.Name, func(t *testing.T) {
			var q Quirks
			if got := play(t, q, c.talk); got != c.sound {
				t.Errorf("sound:\n\t%s, want\n\t%s", got, c.sound)
			}
			if err := q.Set(info.Name, true); err != nil || !slices.Equal(q.Names(), []string{info.Name}) {
				t.Fatalf("%v, on are %q", err, q.Names())
			}
			if got := play(t, q, c.talk); got != c.flawed {
				t.Errorf("flawed:\n\t%s, want\n\t%s", got, c.flawed)
			}
		})
	}
	for name := range quirkTalks {
		if !slices.Contains(names, name) {
			t.Errorf("there is a talk for %s, but no such quirk", name)
		}
	}
}

// SparseCompletions leaves out more than one talk shows, and no more than it says.
func TestWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct{ from, to verbs.WC }{
		{verbs.WC{WRID: 1, ByteLen: 8, QPN: 2, SrcQP: 3, Opcode: verbs.WCOpRecv}, verbs.WC{WRID: 1, ByteLen: 8, QPN: 2, SrcQP: 3, Opcode: verbs.WCOpRecv}},
		{verbs.WC{SrcQP: 3, ByteLen: 48, Flags: verbs.WCWithGRH | verbs.WCWithImm, Imm: 4}, verbs.WC{ByteLen: 48, Flags: verbs.WCWithGRH | verbs.WCWithImm, Imm: 4}},
		{verbs.WC{Flags: verbs.WCWithInv, InvalidatedRKey: 5, SrcQP: 3}, verbs.WC{SrcQP: 3}},
	} {
		if empty(&c.from); c.from != c.to {
			t.Errorf("%+v, want %+v", c.from, c.to)
		}
	}
}

// A device whose flaws concern something else is as good as a sound one: handles
// that it makes are those that it takes, and tells of.
func TestHandlesAreTheProgramsOwn(t *testing.T) {
	got := play(t, Quirks{LimitsOverstated: true}, func(c *talk) {
		c.connect()
		c.must(c.dev.cq.Arm(false))
		c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
		cq, err := c.dev.ch.Wait(verbs.Forever)
		if err != nil || cq != c.dev.cq {
			t.Errorf("event of %v, %v", cq, err)
		}
		c.dev.done()
		bad := c.peer.wr(2, verbs.OpRDMAWrite)
		bad.Remote.RKey++
		c.peer.post(bad)
		e, err := c.dev.d.WaitAsync(verbs.Forever)
		for err == nil && e.Type != verbs.EventQPAccessErr {
			e, err = c.dev.d.WaitAsync(verbs.Forever)
		}
		if err != nil || e.QP != c.dev.qp || e.CQ != nil || e.SRQ != nil {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := c.dev.ch.Wait(0); !errors.Is(err, verbs.ErrTimeout) {
			t.Error(err)
		}
		d := c.dev.d.(*device)
		c.must(c.dev.qp.Close())
		c.must(c.dev.cq.Close())
		if len(d.flawed) != 0 {
			t.Errorf("closed handles are remembered: %v", d.flawed)
		}
	})
	if got != "1 SUCCESS 0B" {
		t.Error(got)
	}
}

// The connection manager connects what the flawed device made, and QueryStale knows
// what it has set.
func TestConnecting(t *testing.T) {
	play(t, Quirks{QueryStale: true}, func(c *talk) {
		m := made[verbs.CM](c)(c.dev.d.CM())
		l := made[verbs.Listener](c)(m.Listen(netip.AddrPortFrom(c.dev.addr, 9), verbs.PortSpaceTCP, 1))
		c.proc.World().Go("peer", func(*sim.Proc) error {
			pm := made[verbs.CM](c)(c.peer.d.CM())
			_, err := pm.Connect(c.peer.qp, netip.AddrPortFrom(c.dev.addr, 9), verbs.ConnParam{RetryCount: 7}, verbs.Forever)
			return err
		})
		req := made[verbs.ConnRequest](c)(l.Next(verbs.Forever))
		if _, err := req.Accept(c.dev.qp, verbs.ConnParam{}, verbs.Forever); err != nil {
			t.Fatal(err)
		}
		if a, err := c.dev.qp.Query(); err != nil || a.State != verbs.QPStateRTS {
			t.Errorf("%v, %v", a.State, err)
		}
	})
}

func TestNoFlawsNoDecoration(t *testing.T) {
	var d verbs.Context = &device{}
	if Device(d, Quirks{}) != d {
		t.Error("a sound device is decorated")
	}
}
