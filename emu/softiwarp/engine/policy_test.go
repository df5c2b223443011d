package engine

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// policyCase is a short exchange with a NIC, with its results without and with the policy.
type policyCase struct {
	exchange      func(*testing.T, *host) string
	without, with string
}

// policyCases has an exchange for every policy of the engine.
var policyCases = map[string]policyCase{
	"DropReadsOnEOF": {
		exchange: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			r, _ := h.region(50000, allAccess)
			g := segment(wire.OpReadRequest, 1, nil)
			g.ReadRequest = wire.ReadRequest{Size: 50000, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr}
			k.sendSegment(g)
			k.c.InputEOF(0)
			n := 0
			for _, s := range k.received() {
				n += len(s.Payload)
			}
			return fmt.Sprintf("%d octets, %v", n, k.c.State())
		},
		without: "50000 octets, closed", with: "0 octets, closed",
	},
	"ResetUnusable": {
		exchange: func(t *testing.T, h *host) string {
			c := must.Get(h.nic.Connect(h.qp, ConnParam{IRD: 4, ORD: 4}))(t)
			p := newPipe(t, c, nil)
			p.take(0)
			must.Do(t, h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			p.give(0, unhex(t, replyFrame+crcEnhanced))
			return fmt.Sprintf("%d octets, reset %v", len(p.take(0)), p.reset[0])
		},
		without: "28 octets, reset false", with: "0 octets, reset true",
	},
	"HideTerminate": {
		exchange: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			h.recv(1)
			g := segment(wire.OpTerminate, 1, nil)
			g.Terminate.Error = wire.TermProtAccess
			k.sendSegment(g)
			var wc [1]verbs.WC
			n, _ := h.RecvCQ.Poll(wc[:])
			return fmt.Sprintf("%v %d %#x", h.events(), n, wc[0].VendorErr)
		},
		without: "[IBV_EVENT_QP_FATAL] 1 0xc0000102", with: "[] 1 0x0",
	},
}

func TestEachPolicyChangesItsExchange(t *testing.T) {
	typ := reflect.TypeFor[Policy]()
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Type.Kind() == reflect.Bool && policyCases[f.Name].exchange == nil {
			t.Errorf("%s has no policyCase", f.Name)
		}
	}
	for name, c := range policyCases {
		for on, want := range map[bool]string{false: c.without, true: c.with} {
			t.Run(fmt.Sprintf("%s/%v", name, on), func(t *testing.T) {
				h := newHost(t, func(cfg *Config, _ *iwarp.QueueConfig) {
					reflect.ValueOf(&cfg.Policy).Elem().FieldByName(name).SetBool(on)
				})
				if got := c.exchange(t, h); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

func TestPoliciesReachTheirLayers(t *testing.T) {
	exchange := func(set func(*Policy)) string {
		h := newHost(t, func(cfg *Config, _ *iwarp.QueueConfig) { set(&cfg.Policy) })
		c := h.nic.Incoming()
		k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
		k.give(0, unhex(t, requestFrame+crcEnhanced))
		must.Do(t, c.Accept(0, h.qp, ConnParam{IRD: 4, ORD: 4}))
		h.send(verbs.SendWR{Opcode: verbs.OpSend})
		reply := k.take(0)
		early := len(reply) > wire.StartFrameLen+wire.EnhancedLen
		k.start(reply)
		g := segment(wire.OpSend, 1, nil)
		k.sendSegment(g) // without a receive
		out := k.take(0)
		swapped := strings.Contains(fmt.Sprintf("%x", out), "2102")
		return fmt.Sprint(early, swapped, h.nic.Mem.Policy.WindowCoversRegion)
	}
	for want, set := range map[string]func(*Policy){
		"false false false": func(*Policy) {},
		"true false false":  func(p *Policy) { p.MPA.ResponderSends = mpa.AfterReply },
		"false true false":  func(p *Policy) { p.Stream.Terminate.Order = wire.OrderSiw },
		"false false true":  func(p *Policy) { p.Shared.WindowCoversRegion = true },
	} {
		if got := exchange(set); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
