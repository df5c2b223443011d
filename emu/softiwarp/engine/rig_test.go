package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// host is a NIC with a queue pair and its queues.
type host struct {
	t      testing.TB
	nic    *NIC
	pd     nic.PD
	SendCQ *nic.CQ
	RecvCQ *nic.CQ
	qp     *QP
}

type hostOption func(*Config, *iwarp.QueueConfig)

// cqDepth is how many completions a host's queues hold.
const cqDepth = 256

func newHost(t testing.TB, opts ...hostOption) *host {
	t.Helper()
	h := &host{t: t}
	cfg := Config{KeySecret: [16]byte{0x5e, 0xc2}}
	q := iwarp.QueueConfig{
		SignalAll: true,
		Caps:      verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	}
	for _, o := range opts {
		o(&cfg, &q)
	}
	h.nic = must.Get(New(cfg))(t)
	h.pd, _ = h.nic.AllocPD()
	h.SendCQ = h.cq(cqDepth)
	h.RecvCQ = h.cq(cqDepth)
	if q.SendCQ == nil {
		q.SendCQ, q.RecvCQ = h.SendCQ, h.RecvCQ
	}
	q.PD = h.pd
	h.qp = h.newQP(q)
	return h
}

func (h *host) cq(depth int) *nic.CQ {
	h.t.Helper()
	cq := must.Get(h.nic.CreateCQ(depth))(h.t)
	return cq
}

func (h *host) newQP(q iwarp.QueueConfig) *QP {
	h.t.Helper()
	qp := must.Get(h.nic.CreateQP(q))(h.t)
	return qp
}

func (h *host) region(n int, access verbs.Access) (*nic.Region, nic.Bytes) {
	return h.regionAt(n, 0, access)
}

func (h *host) regionAt(n int, addr uint64, access verbs.Access) (*nic.Region, nic.Bytes) {
	h.t.Helper()
	mem := make(nic.Bytes, n)
	r := must.Get(h.nic.RegMR(h.pd, mem, addr, access))(h.t)
	return r, mem
}

func sge(r *nic.Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(r.Key)}
}

// send posts a request, which must succeed.
func (h *host) send(wr verbs.SendWR) {
	h.t.Helper()
	must.Do(h.t, h.qp.PostSend(&wr, Refs{}))
}

func (h *host) recv(id uint64, sgl ...verbs.SGE) {
	h.t.Helper()
	must.Do(h.t, h.qp.PostRecv(&verbs.RecvWR{WRID: id, SGL: sgl}))
}

// poll returns the completions of a queue as text: ID and status, and the length of receives.
func poll(cq *nic.CQ) (got []string) {
	var wc [16]verbs.WC
	for {
		n, err := cq.Poll(wc[:])
		if err != nil {
			return append(got, err.Error())
		}
		for _, c := range wc[:n] {
			s := fmt.Sprint(c.WRID)
			switch {
			case c.Status != verbs.WCSuccess:
				s += " " + strings.TrimPrefix(c.Status.String(), "IBV_WC_")
			case c.Opcode >= verbs.WCOpRecv:
				s += fmt.Sprintf(":%d", c.ByteLen)
			}
			got = append(got, s)
		}
		if n < len(wc) {
			return got
		}
	}
}

func (h *host) wantSends(want ...string) {
	h.t.Helper()
	if got := poll(h.SendCQ); !slices.Equal(got, want) {
		h.t.Errorf("sends %q, want %q", got, want)
	}
}

func (h *host) wantRecvs(want ...string) {
	h.t.Helper()
	if got := poll(h.RecvCQ); !slices.Equal(got, want) {
		h.t.Errorf("receives %q, want %q", got, want)
	}
}

func (h *host) wantState(want verbs.QPState) {
	h.t.Helper()
	if h.qp.state != want {
		h.t.Errorf("state %v, want %v", h.qp.state, want)
	}
}

// events returns the pending asynchronous events.
func (h *host) events() (got []verbs.AsyncEventType) {
	for {
		e, ok := h.nic.NextEvent()
		if !ok {
			return got
		}
		got = append(got, e.Type)
	}
}

func (h *host) wantEvents(want ...verbs.AsyncEventType) {
	h.t.Helper()
	if got := h.events(); !slices.Equal(got, want) {
		h.t.Errorf("events %v, want %v", got, want)
	}
}
