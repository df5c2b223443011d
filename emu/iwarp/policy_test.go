package iwarp

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// policyCase is a short exchange with a stream. Its log must differ between a stream without
// the policy and one with it.
type policyCase struct {
	options       Options
	exchange      func(*side)
	without, with string
}

// log returns the outcome of the exchange as text.
func (s *side) log() string {
	var parts []string
	for _, c := range s.sends {
		parts = append(parts, fmt.Sprintf("send %d %v", c.WRID, c.Status))
	}
	for _, c := range s.received {
		parts = append(parts, fmt.Sprintf("recv %d %v %d", c.WRID, c.Status, c.ByteLen))
		if c.solicited {
			parts = append(parts, "solicited")
		}
	}
	for b := s.out(1442); b != nil; b = s.out(1442) {
		g := parse(s.t, b)
		s.stream.Accepted(1)
		switch g.Control.Opcode {
		case wire.OpTerminate:
			parts = append(parts, "Terminate "+hex.EncodeToString(b[18:]))
		default:
			parts = append(parts, fmt.Sprintf("%v %d", g.Control.Opcode, len(g.Payload)))
		}
	}
	if !s.stream.Live() && !strings.Contains(strings.Join(parts, ""), "Terminate") {
		parts = append(parts, "ended silently")
	}
	return strings.Join(parts, "; ")
}

const flushed = "IBV_WC_WR_FLUSH_ERR"

// policyCases has an exchange for every policy.
var policyCases = map[string]policyCase{
	"HeaderByOpcode": {
		exchange: func(s *side) {
			s.recv(1)
			b := untagged(wire.OpSend, 1, 0, nil, true)
			raw := b.Append(nil)
			raw[0] |= 0x80
			s.stream.Input(raw)
		},
		without: "Terminate 0206c0000012c143000000000000000000000001",
		with:    "recv 1 IBV_WC_SUCCESS 0",
	},
	"AnyReadQueue": {
		exchange: func(s *side) {
			g := readRequest(1, wire.ReadRequest{})
			g.Untagged.QN, g.Untagged.MO = 0, 4
			s.in(g)
		},
		without: "Terminate 1201c000002e414100000000000000000000000100000004",
		with:    "RDMA Read Response 0",
	},
	"WritesInOrder": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.in(tagged(wire.OpWrite, r.Key, r.Addr, []byte("ab"), false))
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+2, []byte("cd"), false))
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+9, []byte("ef"), true))
			s.in(tagged(wire.OpWrite, r.Key, r.Addr+1, []byte("g"), true))
		},
		without: "",
		with:    "Terminate 1101c0000010c140000001000000560000000009",
	},
	"WrapIsLocal": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.in(tagged(wire.OpWrite, r.Key, math.MaxUint64, []byte("ab"), true))
		},
		without: "Terminate 1103c0000010c14000000100ffffffffffffffff",
		with:    "Terminate 1000c0000010c14000000100ffffffffffffffff",
	},
	"ReadWithoutRight": {
		exchange: func(s *side) {
			r, _ := s.region(64, verbs.AccessLocalWrite)
			q := readOf(r, 0, 8)
			q.SinkSTag, q.SinkTO = 1, 2
			s.in(readRequest(1, q))
		},
		without: "Terminate 0102e000002e41410000000000000001000000010000000000000001000000000000000200000008000001000000560000000000",
		with:    "RDMA Read Response 8",
	},
	"LongReadSilent": {
		exchange: func(s *side) {
			g := readRequest(1, wire.ReadRequest{})
			g.Payload = []byte("tail")
			s.in(g)
		},
		without: "Terminate 1205c0000032414100000000000000010000000100000000",
		with:    "ended silently",
	},
	"OpcodeChangeSilent": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.recv(1, sge(r, 0, 64))
			s.in(untagged(wire.OpSend, 1, 0, []byte("a"), false))
			s.in(untagged(wire.OpSendSE, 1, 1, []byte("b"), true))
		},
		without: "recv 1 " + flushed + " 0; Terminate 0206c0000013414500000000000000000000000100000001",
		with:    "recv 1 " + flushed + " 0; ended silently",
	},
	"AcceptShortResponse": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 20)}, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 12), true))
		},
		without: "send 1 IBV_WC_BAD_RESP_ERR; Terminate 1101c000001ac142000001000000560000000000",
		with:    "send 1 IBV_WC_SUCCESS",
	},
	"CheckEmptyResponse": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, nil, to(1, 0))
			s.post(2, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 4)}, to(1, 0))
			s.post(3, verbs.OpRDMARead, nil, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, 0, 0, nil, true)) // names the sink of an empty read
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 4), false))
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr+4, nil, true)) // names the sink as well
			s.in(tagged(wire.OpReadResponse, 9, 9, nil, true))
		},
		without: "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; send 3 IBV_WC_SUCCESS",
		with:    "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS; send 3 IBV_WC_BAD_RESP_ERR; Terminate 1100c000000ec142000000090000000000000009",
	},
	"CheckFirstResponse": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 20)}, to(1, 0))
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, make([]byte, 12), false))
			s.in(tagged(wire.OpReadResponse, 9, 9, make([]byte, 8), true))
		},
		without: "send 1 IBV_WC_BAD_RESP_ERR; Terminate 1100c0000016c142000000090000000000000009",
		with:    "send 1 IBV_WC_SUCCESS",
	},
	"KeepAfterInvalidate": {
		exchange: func(s *side) {
			s.recv(1)
			s.recv(2)
			g := untagged(wire.OpSendInv, 1, 0, nil, true)
			g.Untagged.Invalidate = 0x77
			s.in(g)
			s.in(untagged(wire.OpSend, 2, 0, nil, true))
		},
		without: "recv 1 IBV_WC_REM_INV_REQ_ERR 0; Terminate 0109c0000012414400000077000000000000000100000000",
		with:    "recv 1 IBV_WC_REM_INV_REQ_ERR 0; recv 2 IBV_WC_SUCCESS 0",
	},
	"IgnoreSolicited": {
		exchange: func(s *side) {
			s.recv(1)
			s.in(untagged(wire.OpSendSE, 1, 0, nil, true))
		},
		without: "recv 1 IBV_WC_SUCCESS 0; solicited",
		with:    "recv 1 IBV_WC_SUCCESS 0",
	},
	"NoExtensions": {
		exchange: func(s *side) {
			s.recv(1)
			s.in(untagged(wire.OpImmediate, 1, 0, nil, true))
		},
		without: "recv 1 IBV_WC_SUCCESS 0",
		with:    "Terminate 0206c000001a414800000000000000000000000100000000",
	},
	"RoundUpIRD": {
		options: Options{IRD: 3},
		exchange: func(s *side) {
			for i := range 5 {
				s.in(readRequest(wire.MSN(i+1), wire.ReadRequest{}))
			}
		},
		without: "Terminate 1202c000002e414100000000000000010000000400000000",
		with:    "RDMA Read Response 0; RDMA Read Response 0; RDMA Read Response 0; RDMA Read Response 0; RDMA Read Response 0",
	},
	"RoundUpORD": {
		options: Options{ORD: 3},
		exchange: func(s *side) {
			for i := range uint64(8) {
				s.post(i, verbs.OpRDMARead, nil)
			}
		},
		without: "RDMA Read Request 0; RDMA Read Request 0; RDMA Read Request 0",
		with:    "RDMA Read Request 0; RDMA Read Request 0; RDMA Read Request 0; RDMA Read Request 0",
	},
	"EmptyReadRepeats": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.in(readRequest(1, readOf(r, 0, 64)))
			s.in(readRequest(2, wire.ReadRequest{}))
		},
		without: "RDMA Read Response 64; RDMA Read Response 0",
		with:    "RDMA Read Response 64; RDMA Read Response 64",
	},
	"CompleteEarly": {
		exchange: func(s *side) {
			r, _ := s.region(64, allAccess)
			s.post(1, verbs.OpRDMARead, []verbs.SGE{sge(r, 0, 1)})
			s.post(2, verbs.OpSend, nil)
			s.all(1442)
			s.in(tagged(wire.OpReadResponse, r.Key, r.Addr, []byte{1}, true))
		},
		without: "send 1 IBV_WC_SUCCESS; send 2 IBV_WC_SUCCESS",
		with:    "send 2 IBV_WC_SUCCESS; send 1 IBV_WC_SUCCESS",
	},
	"LongIsNoBuffer": {
		exchange: func(s *side) {
			s.recv(1)
			s.in(untagged(wire.OpSend, 1, 0, []byte{1}, true))
		},
		without: "recv 1 IBV_WC_LOC_LEN_ERR 0; Terminate 1205c0000013414300000000000000000000000100000000",
		with:    "recv 1 IBV_WC_LOC_LEN_ERR 0; Terminate 1202c0000013414300000000000000000000000100000000",
	},
	"ExcessReadIsStream": {
		options: Options{IRD: 1},
		exchange: func(s *side) {
			s.in(readRequest(1, wire.ReadRequest{}))
			s.in(readRequest(2, wire.ReadRequest{}))
		},
		without: "Terminate 1202c000002e414100000000000000010000000200000000",
		with:    "Terminate 0207c000002e414100000000000000010000000200000000",
	},
	"UnexpectedIsLocal": {
		exchange: func(s *side) { s.in(tagged(wire.OpReadResponse, 1, 2, nil, true)) },
		without:  "Terminate 0206c000000ec142000000010000000000000002",
		with:     "Terminate 1000c000000ec142000000010000000000000002",
	},
	"Order": {
		exchange: func(s *side) { s.in(untagged(wire.OpSend, 1, 0, nil, true)) },
		without:  "Terminate 1202c0000012414300000000000000000000000100000000",
		with:     "Terminate 210203000012414300000000000000000000000100000000",
	},
	"PayloadLength": {
		exchange: func(s *side) { s.in(untagged(wire.OpSend, 1, 0, make([]byte, 16), true)) },
		without:  "Terminate 1202c0000022414300000000000000000000000100000000",
		with:     "Terminate 1202c0000010414300000000000000000000000100000000",
	},
	"NoOperationHeader": {
		exchange: func(s *side) {
			s.in(with(untagged(wire.OpSend, 1, 0, nil, true), func(g *wire.Segment) { g.Control.RDMAPVersion = 0 }))
		},
		without: "Terminate 0205c0000012410300000000000000000000000100000000",
		with:    "Terminate 02050000",
	},
	"ReadAsReceived": {
		exchange: func(s *side) {
			r, _ := s.region(3000, allAccess)
			q := readOf(r, 0, 3000)
			q.SinkSTag, q.SinkTO = 1, 2
			s.in(readRequest(1, q))
			s.out(1442)
			must.Do(s.t, s.base.DeregMR(r))
		},
		without: "Terminate 0100e000002e41410000000000000001000000010000000000000001000000000000059600000624000001000000560000000594",
		with:    "Terminate 0100e000002e4141000000000000000100000bb80000000000000001000000000000000200000bb8000001000000560000000000",
	},
	"InvalidateFlag": {
		exchange: func(s *side) {
			s.recv(1)
			s.in(with(untagged(wire.OpSendInv, 1, 0, nil, true), func(g *wire.Segment) { g.Untagged.Invalidate = 0x77 }))
		},
		without: "recv 1 IBV_WC_REM_INV_REQ_ERR 0; Terminate 0109c0000012414400000077000000000000000100000000",
		with:    "recv 1 IBV_WC_REM_INV_REQ_ERR 0; Terminate 0109e0000012414400000077000000000000000100000000",
	},
	"MidMessageSilent": {
		exchange: func(s *side) {
			r, _ := s.region(3000, allAccess)
			s.post(1, verbs.OpSend, []verbs.SGE{sge(r, 0, 3000)})
			s.out(1442)
			s.in(tagged(wire.OpReadResponse, 1, 2, nil, true))
		},
		without: "send 1 " + flushed + "; Terminate 0206c000000ec142000000010000000000000002",
		with:    "send 1 " + flushed + "; ended silently",
	},
}

func TestEveryPolicyChangesItsExchange(t *testing.T) {
	policies := 0
	for group := range reflect.TypeFor[Policy]().NumField() {
		for i := range reflect.TypeFor[Policy]().Field(group).Type.NumField() {
			policies++
			name := reflect.TypeFor[Policy]().Field(group).Type.Field(i).Name
			c, ok := policyCases[name]
			if !ok || c.with == c.without {
				t.Errorf("%s has no exchange that shows it", name)
				continue
			}
			var policy Policy
			c.expect(t, name, policy, c.without)
			if v := reflect.ValueOf(&policy).Elem().Field(group).Field(i); v.Kind() == reflect.Bool {
				v.SetBool(true)
			} else {
				v.SetUint(1)
			}
			c.expect(t, name, policy, c.with)
		}
	}
	if len(policyCases) != policies {
		t.Errorf("%d exchanges for %d policies", len(policyCases), policies)
	}
}

// expect runs the exchange with a stream that has a policy.
func (c policyCase) expect(t *testing.T, name string, policy Policy, want string) {
	t.Helper()
	if c.options == (Options{}) {
		c.options = depth
	}
	s := newSide(t, c.options, policy)
	c.exchange(s)
	if got := s.log(); got != want {
		t.Errorf("%s with %+v:\n\t%s\nwant:\n\t%s", name, policy, got, want)
	}
}

func TestWrapIsLocalEndsReadWithoutTerminate(t *testing.T) {
	s := newSide(t, depth, Policy{Terminate: TerminatePolicy{WrapIsLocal: true}})
	r, _ := s.region(64, allAccess)
	s.in(readRequest(1, wire.ReadRequest{Size: 8, SrcSTag: wire.STag(r.Key), SrcTO: math.MaxUint64}))
	if got := s.log(); got != "ended silently" {
		t.Errorf("%q", got)
	}
}
