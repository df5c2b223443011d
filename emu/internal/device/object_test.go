package device

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A verb accepts only open handles of its device and of the right type.
func TestCheckHandle(t *testing.T) {
	r, other := newRig(t, Hooks{}), newRig(t, Hooks{})
	closed := object[*PD](t)(r.AllocPD())
	must.Do(t, closed.Close())
	for _, c := range []struct {
		name   string
		handle verbs.PD
		want   error
		says   string
	}{
		{"own", r.pd, nil, ""},
		{"none", nil, verbs.ErrInvalid, "no PD is given"},
		{"another device's", other.pd, verbs.ErrInvalid, "belongs to another device"},
		{"another provider's", struct{ verbs.PD }{}, verbs.ErrInvalid, "belongs to another device"},
		{"a closed one", closed, verbs.ErrClosed, "the PD"},
	} {
		var handle any
		if c.handle != nil {
			handle = c.handle
		}
		h, err := CheckHandle[*PD](&r.Device, "create_qp", "PD", handle)
		if !errors.Is(err, c.want) || err == nil && h != r.pd || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", c.name, h, err)
		}
		used := false
		err = CheckOptionalHandle(&r.Device, "create_qp", "PD", handle, func(p *PD) { used = p == r.pd })
		if handle == nil {
			c.want = nil
		}
		if !errors.Is(err, c.want) || used != (c.name == "own") {
			t.Errorf("%s, optional: %v, used %v", c.name, err, used)
		}
	}
	for name, in := range map[string]verbs.SRQInit{
		"PD":         {PD: other.pd, MaxWR: 1},
		"CQ":         {PD: r.pd, CQ: other.cq, MaxWR: 1},
		"XRC domain": {PD: r.pd, XRCD: &XRCD{}, MaxWR: 1},
	} {
		if _, err := r.CreateSRQ(in); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), "the "+name+" belongs") {
			t.Errorf("an SRQ with another device's %s: %v", name, err)
		}
	}
	must.Fail(t, "a CQ with another device's channel", must.Err(r.CreateCQ(verbs.CQInit{Depth: 1, Channel: other.ch})), verbs.ErrInvalid)
}

// A verb that fails returns a nil interface.
func TestFailedCreateReturnsNil(t *testing.T) {
	r := newRig(t, Hooks{XRC: true})
	r.base.Limits.PDs, r.base.Limits.XRCDs = 1, 0
	for name, call := range map[string]func() (any, error){
		"PD":   func() (any, error) { return r.AllocPD() },
		"MR":   func() (any, error) { return r.pd.RegMR(verbs.MRInit{Access: verbs.AccessRemoteWrite}) },
		"MW":   func() (any, error) { return r.pd.AllocMW(9) },
		"CQ":   func() (any, error) { return r.CreateCQ(verbs.CQInit{}) },
		"SRQ":  func() (any, error) { return r.CreateSRQ(verbs.SRQInit{}) },
		"XRCD": func() (any, error) { return r.OpenXRCD() },
		"AH":   func() (any, error) { return r.pd.CreateAH(verbs.AHAttr{}) },
	} {
		if x, err := call(); x != nil || err == nil {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
}

func TestHandleStaysOpenIfCloseFails(t *testing.T) {
	r := newRig(t, Hooks{})
	must.Get(r.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}))(t)
	for range 2 {
		must.Fail(t, "close of a PD with an MR", r.pd.Close(), verbs.ErrBusy)
	}
}

func TestCreateAHUsesHook(t *testing.T) {
	must.Fail(t, "without a hook", must.Err(newRig(t, Hooks{}).pd.CreateAH(verbs.AHAttr{})), verbs.ErrNotSupported)
	var asked *PD
	r := newRig(t, Hooks{CreateAH: func(p *PD, a verbs.AHAttr) (verbs.AH, error) {
		asked = p
		return nil, nil
	}})
	if _, err := r.pd.CreateAH(verbs.AHAttr{}); err != nil || asked != r.pd {
		t.Errorf("%v, asked of %p, want %p", err, asked, r.pd)
	}
}

func TestMemoryHandles(t *testing.T) {
	r := newRig(t, Hooks{})
	mr, mw, _, _ := r.makeObjects()
	if mr.Addr() != 0x1000 || mr.Len() != 16 || uint32(mr.LKey()) != mr.R.Key || uint32(mr.RKey()) != mr.R.Key {
		t.Errorf("%#x, %d bytes, keys %#x and %#x of %#x", mr.Addr(), mr.Len(), mr.LKey(), mr.RKey(), mr.R.Key)
	}
	if mw.Type() != verbs.MWType1 || uint32(mw.RKey()) != mw.W.Key {
		t.Errorf("%v, key %#x of %#x", mw.Type(), mw.RKey(), mw.W.Key)
	}
}

// errRefused is an error of the post function.
var errRefused = errors.New("refused")

// Each bind of a type 1 window returns another key, also while earlier binds are queued. A
// bind that fails changes nothing.
func TestBindMW(t *testing.T) {
	r, other := newRig(t, Hooks{}), newRig(t, Hooks{})
	mr, mw, _, _ := r.makeObjects()
	q := &QP{Object: Object{D: &r.Device}}
	info := verbs.BindInfo{MR: mr, Addr: 0x1000, Length: 8, Access: verbs.AccessRemoteRead}
	var posted []verbs.SendWR
	var answer error
	q.Post = func(wr *verbs.SendWR) error {
		r.record("post", true)
		posted = append(posted, *wr)
		return answer
	}
	key := verbs.RKey(mw.W.Key)
	for i := range 3 {
		want := verbs.NextRKey(key)
		answer = nil
		if i == 1 {
			answer = errRefused
		}
		got, err := q.BindMW(mw, uint64(i), verbs.SendSignaled, info)
		r.expectCalls("lock post", "post", "pump", "unlock")
		if !errors.Is(err, answer) || err == nil && got != want {
			t.Errorf("bind %d: key %#x, %v; want %#x", i, got, err, want)
		}
		wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: mw, RKey: want, Info: info}}
		if p := posted[i]; p.WRID != wr.WRID || p.Opcode != wr.Opcode || p.Flags != wr.Flags || p.Bind != wr.Bind {
			t.Errorf("bind %d: posted %+v, want %+v", i, p, wr)
		}
		if mw.bindWR[0].Bind.MW != nil {
			t.Errorf("bind %d: the request is kept", i)
		}
		if err == nil {
			key = want
		}
	}
	type2 := object[*MW](t)(r.pd.AllocMW(verbs.MWType2))
	foreign := object[*MW](t)(other.pd.AllocMW(verbs.MWType1))
	r.log = nil
	for name, w := range map[string]verbs.MW{"of type 2": type2, "of another device": foreign, "that there is not": nil} {
		must.Fail(t, fmt.Sprintf("a window %s", name), must.Err(q.BindMW(w, 0, 0, info)), verbs.ErrInvalid)
		r.expectCalls()
	}
	if n := testing.AllocsPerRun(100, func() {
		posted, r.log = posted[:0], r.log[:0]
		must.Get(q.BindMW(mw, 0, 0, info))(t)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestResolveBind(t *testing.T) {
	r, other := newRig(t, Hooks{}), newRig(t, Hooks{})
	mr, type1, _, _ := r.makeObjects()
	mw := object[*MW](t)(r.pd.AllocMW(verbs.MWType2))
	foreignMR, foreignMW, _, _ := other.makeObjects()
	for _, c := range []struct {
		name   string
		op     verbs.WROpcode
		bind   verbs.Bind
		window *nic.Window
		region *nic.Region
		says   string
	}{
		{"no bind", verbs.OpSend, verbs.Bind{MW: foreignMW}, nil, nil, ""},
		{"a bind", verbs.OpBindMW, verbs.Bind{MW: mw, Info: verbs.BindInfo{MR: mr}}, mw.W, mr.R, ""},
		{"of a type 1 window", verbs.OpBindMW, verbs.Bind{MW: type1, Info: verbs.BindInfo{MR: mr}}, nil, nil, "by BindMW"},
		{"to no region", verbs.OpBindMW, verbs.Bind{MW: mw}, mw.W, nil, ""},
		{"of no window", verbs.OpBindMW, verbs.Bind{Info: verbs.BindInfo{MR: mr}}, nil, nil, "memory window"},
		{"of another device's window", verbs.OpBindMW, verbs.Bind{MW: foreignMW}, nil, nil, "memory window"},
		{"to another device's region", verbs.OpBindMW, verbs.Bind{MW: mw, Info: verbs.BindInfo{MR: foreignMR}}, nil, nil, "memory region"},
	} {
		w, region, err := r.ResolveBind(&verbs.SendWR{Opcode: c.op, Bind: c.bind})
		if w != c.window || region != c.region || (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %p, %p, %v", c.name, w, region, err)
		}
	}
}
