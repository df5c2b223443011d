package device

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// verb is a call with the name that its errors carry.
type verb struct {
	name string
	call func() error
}

// controlVerbs are the control verbs of handles that do not destroy them. Objects that
// they create are destroyed at once.
func (r *rig) controlVerbs(s *SRQ) []verb {
	return []verb{
		{"reg_mr", func() error {
			m, err := r.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)})
			if err == nil {
				err = r.base.DeregMR(m.(*MR).R)
			}
			return err
		}},
		{"alloc_mw", func() error {
			m, err := r.pd.AllocMW(verbs.MWType1)
			if err == nil {
				r.base.DeallocMW(m.(*MW).W)
			}
			return err
		}},
		{"resize_cq", func() error { return r.cq.Resize(8) }},
		{"modify_srq", func() error { return s.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit) }},
		{"query_srq", func() error { _, err := s.Query(); return err }},
	}
}

// destroyVerbs are the verbs that destroy the handles, in a valid order.
func (r *rig) destroyVerbs(mr *MR, mw *MW, s *SRQ, x *XRCD) []verb {
	return []verb{
		{"dereg_mr", mr.Close},
		{"dealloc_mw", mw.Close},
		{"destroy_srq", s.Close},
		{"close_xrcd", x.Close},
		{"destroy_cq", r.cq.Close},
		{"destroy_comp_channel", r.ch.Close},
		{"dealloc_pd", r.pd.Close},
	}
}

// makeObjects creates one object of each type that newRig does not.
func (r *rig) makeObjects() (*MR, *MW, *SRQ, *XRCD) {
	r.t.Helper()
	mr := object[*MR](r.t)(r.pd.RegMR(verbs.MRInit{Buf: make([]byte, 16), Addr: 0x1000, Access: verbs.AccessMWBind}))
	mw := object[*MW](r.t)(r.pd.AllocMW(verbs.MWType1))
	s := object[*SRQ](r.t)(r.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: 2, MaxSGE: 1}))
	r.hooks.XRC = true
	x := object[*XRCD](r.t)(r.OpenXRCD())
	r.log = nil
	return mr, mw, s, x
}

// A control verb runs BeforeControl, works under the lock and pumps. On a closed handle it
// fails and does nothing.
func TestControlVerbs(t *testing.T) {
	before := 0
	r := newRig(t, Hooks{BeforeControl: func() { before++ }})
	mr, mw, s, x := r.makeObjects()
	all := append(r.controlVerbs(s), r.destroyVerbs(mr, mw, s, x)...)
	before = 0
	for i, v := range all {
		if err := v.call(); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		r.expectCalls("lock control", "pump", "unlock")
		if before != i+1 {
			t.Fatalf("%s: BeforeControl has run %d times, want %d", v.name, before, i+1)
		}
	}
	if _, err := r.WaitAsync(0); !errors.Is(err, verbs.ErrTimeout) || before != len(all) {
		t.Errorf("%v: BeforeControl ran for a wait", err)
	}
	r.log = nil
	for _, v := range all {
		err := v.call()
		var op *verbs.OpError
		if !errors.Is(err, verbs.ErrClosed) || !errors.As(err, &op) || op.Op != v.name || op.Obj != "nic0" {
			t.Errorf("%s on a closed handle: %v", v.name, err)
		}
		r.expectCalls("lock control", "unlock")
	}
}

func TestVerbsFailOnClosedDevice(t *testing.T) {
	r := newRig(t, Hooks{})
	mr, mw, s, x := r.makeObjects()
	if !r.Shutdown(func() { r.record("last", true) }) {
		t.Error("Shutdown: the device was closed already")
	}
	r.expectCalls("lock control", "last", "unlock", "close")
	if r.Shutdown(func() { t.Error("last was called twice") }) || r.fakeDriver.closed != 1 {
		t.Error("the driver was closed twice")
	}
	r.log = nil
	for _, v := range append(append(r.controlVerbs(s), r.destroyVerbs(mr, mw, s, x)...),
		verb{"alloc_pd", func() error { _, err := r.AllocPD(); return err }},
		verb{"create_comp_channel", func() error {
			ch, err := r.CreateCompChannel()
			if ch != nil {
				t.Error("a channel was returned")
			}
			return err
		}},
		verb{"create_cq", func() error { _, err := r.CreateCQ(verbs.CQInit{Depth: 1}); return err }},
		verb{"create_srq", func() error { _, err := r.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: 1}); return err }},
		verb{"open_xrcd", func() error { _, err := r.OpenXRCD(); return err }},
		verb{"poll_cq", func() error { _, err := r.cq.Poll(make([]verbs.WC, 1)); return err }},
		verb{"req_notify_cq", func() error { return r.cq.ReqNotify(false) }},
		verb{"post_srq_recv", func() error { _, err := s.PostRecv(nil); return err }},
		verb{"get_cq_event", func() error { _, err := r.ch.Wait(verbs.Forever); return err }},
		verb{"get_async_event", func() error { _, err := r.WaitAsync(verbs.Forever); return err }},
	) {
		var op *verbs.OpError
		if err := v.call(); !errors.Is(err, verbs.ErrClosed) || !errors.As(err, &op) || op.Op != v.name {
			t.Errorf("%s: %v", v.name, err)
		}
		if len(r.log) != 2 || r.locked {
			t.Fatalf("%s: %q", v.name, r.log)
		}
		r.log = nil
	}
}

// A poll that finds a completion does not receive. An empty poll receives and reports the
// result to the driver, except between ReqNotify and a wait, which receives itself.
func TestPollReceivesIfQueueIsEmpty(t *testing.T) {
	r := newRig(t, Hooks{})
	var into [2]verbs.WC
	poll := func(want int, did ...string) {
		t.Helper()
		if n, err := r.cq.Poll(into[:]); n != want || err != nil {
			t.Errorf("%d completions, %v; want %d", n, err, want)
		}
		r.expectCalls(did...)
	}
	poll(0, "lock poll", "progress", "poll empty", "unlock", "yield")
	r.onProgress = func() { r.cq.Q.Push(&verbs.WC{WRID: 1}, false) }
	poll(1, "lock poll", "progress", "poll found", "unlock")
	r.onProgress = nil
	for range 3 {
		r.cq.Q.Push(&verbs.WC{}, false)
	}
	poll(2, "lock poll", "unlock")
	poll(1, "lock poll", "unlock")
	must.Do(t, r.cq.ReqNotify(false))
	r.expectCalls("lock poll", "unlock")
	poll(0, "lock poll", "unlock")
	poll(0, "lock poll", "progress", "poll empty", "unlock", "yield")
	for range 5 {
		r.cq.Q.Push(&verbs.WC{}, false)
	}
	poll(2, "lock poll", "unlock")
	poll(2, "lock poll", "unlock")
	if n, err := r.cq.Poll(into[:]); n != 0 || !errors.Is(err, verbs.ErrOverrun) {
		t.Errorf("%d completions of an overrun queue, %v", n, err)
	}
}

func TestPollAndPostRecvDoNotAllocate(t *testing.T) {
	r := newRig(t, Hooks{})
	_, _, s, _ := r.makeObjects()
	var into [2]verbs.WC
	wrs := make([]verbs.RecvWR, 1)
	if n := testing.AllocsPerRun(100, func() {
		r.cq.Q.Push(&verbs.WC{}, false)
		if n, err := r.cq.Poll(into[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := r.cq.Poll(into[:]); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.PostRecv(wrs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		s.S.Take()
		r.log = r.log[:0]
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// PostRecv returns how many requests were posted before the first error.
func TestSRQPostRecvStopsAtFirstError(t *testing.T) {
	r := newRig(t, Hooks{})
	_, _, s, _ := r.makeObjects()
	if n, err := s.PostRecv([]verbs.RecvWR{{WRID: 1}, {WRID: 2}, {WRID: 3}}); n != 2 || !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("%d of three to a queue of two: %v", n, err)
	}
	r.expectCalls("lock post", "pump", "unlock")
	if w := s.S.Peek(); w == nil || w.WRID != 1 || s.S.Count() != 2 || s.Number() != s.S.Num() {
		t.Errorf("%d receives, first %+v", s.S.Count(), w)
	}
}

// A wait ends when the condition holds, at its timeout, or when the device is closed. A
// spurious wake-up does not end it.
func TestWait(t *testing.T) {
	r := newRig(t, Hooks{})
	r.now = 100
	g := r.NewCond(drive.WaitReason("test"))
	for _, c := range []struct {
		name    string
		timeout time.Duration
		happens func(turn int, timeout time.Duration) (ready bool)
		want    error
		turns   int
	}{
		{"ready at once", 0, nil, nil, 0},
		{"timeout 0", 0, func(int, time.Duration) bool { return false }, verbs.ErrTimeout, 0},
		{"woken", verbs.Forever, func(int, time.Duration) bool { return true }, nil, 1},
		{"spurious wake-ups", verbs.Forever, func(turn int, left time.Duration) bool {
			if left >= 0 {
				t.Errorf("%v are left of an infinite timeout", left)
			}
			return turn == 3
		}, nil, 3},
		{"timeout", 30, func(turn int, left time.Duration) bool {
			if want := []time.Duration{30, 20, 10}[turn-1]; left != want {
				t.Errorf("turn %d: %v are left, want %v", turn, left, want)
			}
			r.now += 10
			return false
		}, verbs.ErrTimeout, 3},
		{"closed", verbs.Forever, func(int, time.Duration) bool { r.Device.closed = true; return false }, verbs.ErrClosed, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn, ready := 0, c.happens == nil
			r.onWait = func(timeout time.Duration) {
				if turn++; r.BlockedCalls() != 1 {
					t.Errorf("%d blocked calls", r.BlockedCalls())
				}
				ready = c.happens(turn, timeout)
			}
			r.Lock(drive.CallWait)
			err := r.Wait("op", g, c.timeout, func() bool { return ready })
			r.Unlock()
			r.Device.closed = false
			if !errors.Is(err, c.want) || turn != c.turns || r.BlockedCalls() != 0 {
				t.Errorf("%v after %d turns, want %v after %d; %d still wait", err, turn, c.want, c.turns, r.BlockedCalls())
			}
		})
	}
}

// Shutdown notifies once for each blocked call. Afterwards calls only lock and unlock the
// driver.
func TestShutdownWakesBlockedCalls(t *testing.T) {
	r := newRig(t, Hooks{})
	first, second := r.NewCond(drive.WaitReason("first")).(*fakeCond), r.NewCond(drive.WaitReason("second")).(*fakeCond)
	r.blocked = []drive.Cond{first, second, first}
	r.Shutdown(func() {})
	if first.notified != 2 || second.notified != 1 {
		t.Errorf("notified %d and %d times", first.notified, second.notified)
	}
	r = newRig(t, Hooks{})
	r.onWait = func(time.Duration) {
		r.Unlock() // another goroutine runs
		r.Shutdown(func() {})
		r.Lock(drive.CallWait)
	}
	must.Fail(t, "device closed during the wait", must.Err(r.WaitAsync(verbs.Forever)), verbs.ErrClosed)
	r.expectCalls("lock wait", "wait for asynchronous event of nic0", "unlock", "lock control", "unlock", "close", "lock wait", "unlock")
}

func TestDeviceQueries(t *testing.T) {
	want := Hooks{
		Protocol: "iWARP", PKeys: []uint16{0xffff, 0x8001},
		Port: func() verbs.PortAttr { return verbs.PortAttr{GIDs: 2} },
		GIDs: func() []verbs.GIDEntry { return []verbs.GIDEntry{{Index: 0}, {Index: 1}} },
	}
	r := newRig(t, want)
	if r.Name() != "nic0" || r.Driver() != drive.Driver(r.fakeDriver) || r.Closed() {
		t.Errorf("%s, %v, closed %v", r.Name(), r.Driver(), r.Closed())
	}
	if a := must.Get(r.QueryPort(1))(t); a != want.Port() {
		t.Errorf("port: %+v", a)
	}
	for i := range 2 {
		gid, pkey := must.Get(r.QueryGID(1, i))(t), must.Get(r.QueryPKey(1, i))(t)
		if gid.Index != i || pkey != want.PKeys[i] {
			t.Errorf("entry %d: %+v, %#x", i, gid, pkey)
		}
	}
	for _, c := range []struct {
		port  uint8
		index int
		want  error
	}{{0, 0, verbs.ErrInvalid}, {2, 0, verbs.ErrInvalid}, {1, -1, verbs.ErrNotFound}, {1, 2, verbs.ErrNotFound}} {
		where := fmt.Sprintf("port %d, entry %d", c.port, c.index)
		must.Fail(t, where, must.Err(r.QueryGID(c.port, c.index)), c.want)
		must.Fail(t, where, must.Err(r.QueryPKey(c.port, c.index)), c.want)
	}
	must.Fail(t, "port 2", must.Err(r.QueryPort(2)), verbs.ErrInvalid)
	for _, err := range []error{must.Err(r.OpenXRCD()), must.Err(r.OpenQP(nil, 0)), must.Err(r.CreateSRQ(verbs.SRQInit{Type: verbs.SRQXRC}))} {
		must.Fail(t, "XRC", err, verbs.ErrNotSupported)
	}
	r.log = nil
	if depth := r.cq.Depth(); depth != 4 {
		t.Errorf("depth %d", depth)
	}
	r.expectCalls("lock wait", "unlock")
	l := nic.Limits{QPs: 1, QPWR: 2, SGE: 3, Inline: 4, CQs: 5, CQE: 6, MRs: 7, PDs: 8, AHs: 9, SRQs: 10, SRQWR: 11, XRCDs: 12, RdAtomic: 13, McastGroups: 14, McastQPs: 15}
	r.base.Limits = l
	attr := verbs.DeviceAttr{
		MaxQP: 1, MaxQPWR: 2, MaxSGE: 3, MaxSGERead: 3, MaxInline: 4, MaxCQ: 5, MaxCQE: 6, MaxMR: 7, MaxMRSize: 1 << 47, MaxMW: 7,
		MaxPD: 8, MaxAH: 9, MaxSRQ: 10, MaxSRQWR: 11, MaxSRQSGE: 3, MaxXRCD: 12, MaxQPRdAtomic: 13, MaxQPInitAtomic: 13,
		MaxMcastGroups: 14, MaxMcastQPs: 15, Ports: 1,
	}
	if got := r.Attr(); got != attr {
		t.Errorf("%+v, want %+v", got, attr)
	}
}

// On a closed device, no request of a list is posted.
func TestNothingIsPostedOnClosedDevice(t *testing.T) {
	r := newRig(t, Hooks{})
	_, _, s, _ := r.makeObjects()
	q := &QP{Object: Object{D: &r.Device}}
	r.Shutdown(func() {})
	for name, post := range map[string]func() (int, error){
		"post_send":     func() (int, error) { return q.PostSend(make([]verbs.SendWR, 2)) },
		"post_recv":     func() (int, error) { return q.PostRecv(make([]verbs.RecvWR, 2)) },
		"post_srq_recv": func() (int, error) { return s.PostRecv(make([]verbs.RecvWR, 2)) },
	} {
		if n, err := post(); n != 0 || !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: %d posted, %v", name, n, err)
		}
	}
}
