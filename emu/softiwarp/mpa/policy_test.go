package mpa

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// policyCase is a short exchange with a connection, with its results without and with the policy.
type policyCase struct {
	exchange      func(t *testing.T, q Policy) string
	without, with string
}

// describe formats events.
func describe(es []Event) string {
	var all []string
	for _, e := range es {
		s := e.Kind.String()
		if e.Err != nil {
			s += fmt.Sprintf(" %v, %v", e.Term.Code, e.Reaction)
		}
		if e.Kind == EventULPDU {
			s = fmt.Sprintf("ULPDU of %d", len(e.ULPDU))
		}
		if e.Fallback {
			s += ", fall back"
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

// respond formats the events of a responder with q that gets f, and its Reply.
func respond(t *testing.T, cfg Config, q Policy, f wire.StartFrame) string {
	t.Helper()
	cfg.Policy = q
	c := NewResponder(0, cfg)
	es := give(c, f.Append(nil))
	if len(es) == 1 && es[0].Kind == EventRequest {
		must.Do(t, c.Accept(AcceptParam{IRD: 16, ORD: 16}))
	}
	return describe(es) + replyIn(written(c))
}

// replyIn formats the octets after the key, if any.
func replyIn(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return fmt.Sprintf(" -> %x", b[16:min(len(b), 24)])
}

// connect formats the events of an initiator with q that gets f.
func connect(cfg Config, q Policy, f wire.StartFrame) string {
	cfg.Policy = q
	c := NewInitiator(0, cfg)
	written(c)
	return describe(give(c, f.Append(nil)))
}

// with returns a changed frame.
func with(f wire.StartFrame, change func(*wire.StartFrame)) wire.StartFrame {
	change(&f)
	return f
}

func noCRC(f *wire.StartFrame)   { f.CRC = false }
func markers(f *wire.StartFrame) { f.Markers = true }

// damaged returns an FPDU with a wrong CRC, and a valid one.
func damaged() []byte {
	b := stream(crcOn, pattern(18, 0), pattern(30, 1))
	b[7] ^= 1
	return b
}

var policyCases = map[string]policyCase{
	"NeverAskCRC": {
		func(t *testing.T, q Policy) string {
			return fmt.Sprint(parse(t, written(NewInitiator(0, Config{Policy: q}))).CRC) +
				respond(t, Config{}, q, with(request(), noCRC))
		},
		"truerequest -> 40010000", "falserequest -> 00010000",
	},
	"RefuseMarkers": {
		func(t *testing.T, q Policy) string {
			f := with(enhance(request(), wire.Enhanced{IRD: 1, ORD: 1}), markers)
			return respond(t, Config{}, q, f) + "; " + connect(plainConfig(), q, with(reply(), markers))
		},
		"request -> 5002000400100001; accepted",
		"error 4, close now -> 7002000400000000; error 4, close now",
	},
	"EchoFlags": {
		func(t *testing.T, q Policy) string {
			return respond(t, Config{}, q, with(request(), func(f *wire.StartFrame) { f.Reject, f.Enhanced, f.Reserved = true, true, 5 }))
		},
		"request -> 40010000", "request -> 75010000",
	},
	"AcceptRevision0": {
		func(t *testing.T, q Policy) string {
			return respond(t, Config{}, q, with(request(), func(f *wire.StartFrame) { f.Revision = 0 }))
		},
		"error 4, close now", "request -> 40000000",
	},
	"ShortPrivateData": {
		func(t *testing.T, q Policy) string {
			return respond(t, Config{}, q, request(pattern(256, 0)...)) + "; " + respond(t, Config{}, q, request(pattern(257, 0)...))
		},
		"request -> 40010000; request -> 40010000", "request -> 40010000; error 4, close now",
	},
	"LowPDLength": {
		func(t *testing.T, q Policy) string {
			b := written(NewInitiator(0, Config{PrivateData: pattern(252, 0), Policy: q}))
			return fmt.Sprintf("%d octets claim %d", len(b)-20, binary.BigEndian.Uint16(b[18:]))
		},
		"256 octets claim 256", "256 octets claim 0",
	},
	"StopOnBadReply": {
		func(t *testing.T, q Policy) string {
			c := NewInitiator(0, Config{Policy: q})
			written(c)
			f := enhance(reply(), wire.Enhanced{})
			f.PrivateData = f.PrivateData[:2]
			es := give(c, f.Append(nil))
			c.Input(0, stream(crcOn, pattern(18, 0)))
			c.InputEOF()
			return fmt.Sprint(describe(append(es, drain(c)...)), c.Deadline() == mono.Never, " ", connect(plainConfig(), q, reply(pattern(257, 0)...)))
		},
		"error 4, close nowtrue accepted", "true ",
	},
	"AlwaysNegotiate": {
		func(t *testing.T, q Policy) string {
			none := wire.Enhanced{IRD: notNegotiated, ORD: notNegotiated}
			return respond(t, Config{MaxIRD: 128}, q, enhance(request(), none)) + "; " + connect(Config{IRD: 1, ORD: 1, MaxIRD: 128}, q, enhance(reply(), none))
		},
		"request -> 500200043fff3fff; accepted", "request -> 5002000400800010; error 6, terminate, then close",
	},
	"OfferOneRTR": {
		func(t *testing.T, q Policy) string {
			all := ""
			for _, r := range []RTR{rtrAll, RTRSend, RTRRead} {
				all += respond(t, Config{}, q, enhance(request(), withRTR(r, 0)))[len("request -> 50020004"):] + " "
			}
			return all
		},
		"c010c000 c0100000 80104000 ", "80108000 80108000 80104000 ",
	},
	"NoFallback": {
		func(t *testing.T, q Policy) string {
			c := NewInitiator(0, Config{Policy: q})
			c.InputEOF()
			return describe(drain(c))
		},
		"EOF 1, close now, fall back", "EOF 1, close now",
	},
	"ResponderSends=2": {
		func(t *testing.T, q Policy) string {
			return fmt.Sprint(responding(t, Config{Policy: q}, crcOn, crcOn).MaySend())
		},
		"false", "true",
	},
	"ResponderSends=1": {
		func(t *testing.T, q Policy) string {
			c := responding(t, Config{Policy: q}, crcOn, crcOn)
			give(c, []byte{0})
			return fmt.Sprint(c.MaySend())
		},
		"false", "true",
	},
	"HoldFirst": {
		func(t *testing.T, q Policy) string {
			c := responding(t, Config{Policy: q}, crcOn, crcOn)
			s := describe(give(c, stream(crcOn, pattern(18, 0)))) + "|" + describe(give(c, stream(crcOn, pattern(14, 0))))
			c, _ = replies(t, Config{Policy: q}, withRTR(RTRWrite, 1), AcceptParam{}) // waits for an RTR
			return s + "|" + describe(give(c, stream(crcOn, pattern(14, 0))))
		},
		"ULPDU of 18|ULPDU of 14|ULPDU of 14", "|ULPDU of 18; ULPDU of 14|ULPDU of 14",
	},
	"ReusePad": { // vectors V14 and V15: octets of siw
		func(t *testing.T, q Policy) string {
			c := sending(t, Config{Policy: q}, crcOn)
			first := fromHex(t, "00224143000000000000000000000001000000000000000000000000000000000000000084609a12")
			second := fromHex(t, "0023c14055667788000000000000200072646d612d70696e672d303a204142434445464700609a1227e9ba44")
			sent(c, first[2:20], first[20:36])
			b := sent(c, second[2:16], second[16:37])
			return fmt.Sprintf("%x", b[37:])
		},
		"0000005cdda9ed", "609a1227e9ba44",
	},
	"TrailerInOne": {
		func(t *testing.T, q Policy) string {
			b := stream(crcOn, pattern(19, 0))
			all := ""
			for _, cut := range []int{10, 21, 22, 27} {
				c := responding(t, Config{Policy: q}, crcOn, crcOn)
				all += describe(append(give(c, b[:cut]), give(c, b[cut:])...)) + "|"
			}
			c := responding(t, Config{Policy: q}, wire.Framing{}, wire.Framing{})
			b = stream(wire.Framing{}, pattern(19, 0))
			return all + describe(append(give(c, b[:22]), give(c, b[22:])...))
		},
		"ULPDU of 19|ULPDU of 19|ULPDU of 19|ULPDU of 19|ULPDU of 19",
		"ULPDU of 19|ULPDU of 19|error 2, terminate, then close|error 2, terminate, then close|ULPDU of 19",
	},
	"DeliverUnchecked": {
		func(t *testing.T, q Policy) string {
			es := give(responding(t, Config{Policy: q}, crcOn, crcOn), damaged())
			return fmt.Sprintf("%s, ULPDU of %d", describe(es), len(es[0].ULPDU))
		},
		"error 2, terminate, then close, ULPDU of 0", "error 2, terminate, then close, ULPDU of 18",
	},
	"DeliverPartial": {
		func(t *testing.T, q Policy) string {
			all := ""
			for _, f := range []wire.Framing{crcOn, marked1} {
				for _, n := range []int{1, 10, 22, 24, 24 + 16} { // octets, of an FPDU of 24
					c := responding(t, Config{Policy: q}, f, crcOn)
					give(c, stream(f, pattern(18, 0), pattern(20, 1))[:n])
					all += fmt.Sprintf("%d ", len(c.PartialULPDU()))
				}
			}
			return all
		},
		"0 0 0 0 0 0 0 0 0 0 ", "0 8 18 0 14 0 0 0 0 0 ",
	},
	"RoundMSSDown": {
		func(t *testing.T, q Policy) string {
			c := sending(t, Config{Policy: q, MSS: 1460}, crcOn)
			n := c.MULPDU()
			c.SetMSS(1448)
			c.Send(send(1), nil)
			c.Send(send(2), nil)
			return fmt.Sprint(n, c.MULPDU(), len(c.Output(nil)[0]))
		},
		"1454 1442 48", "1450 1442 24",
	},
}

func TestEachPolicyChangesItsExchange(t *testing.T) {
	typ := reflect.TypeFor[Policy]()
	for _, f := range reflect.VisibleFields(typ) {
		if _, ok := policyCases[f.Name]; !ok && !f.Anonymous && f.Name != "ResponderSends" {
			t.Errorf("%s has no conversation that shows it", f.Name)
		}
	}
	for name, c := range policyCases {
		t.Run(name, func(t *testing.T) {
			var q Policy
			if got := c.exchange(t, q); got != c.without {
				t.Errorf("without it: %q, want %q", got, c.without)
			}
			if name, value, numbered := strings.Cut(name, "="); numbered {
				reflect.ValueOf(&q).Elem().FieldByName(name).SetUint(uint64(value[0] - '0'))
			} else {
				reflect.ValueOf(&q).Elem().FieldByName(name).SetBool(true)
			}
			if got := c.exchange(t, q); got != c.with || c.with == c.without {
				t.Errorf("with it: %q, want %q", got, c.with)
			}
		})
	}
}
