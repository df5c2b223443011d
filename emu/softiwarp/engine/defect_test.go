package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// defectCase is a short conversation with a NIC, whose outcome must read one way
// of a sound NIC and another of one with the defect.
type defectCase struct {
	talk             func(*testing.T, *host) string
	sound, defective string
}

// defectCases has a conversation for every defect of the engine's own. The others
// have theirs where they are.
var defectCases = map[string]defectCase{
	"FINDropsAnswers": {
		talk: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			r, _ := h.region(50000, allAccess)
			g := segment(wire.OpReadRequest, 1, nil)
			g.ReadRequest = wire.ReadRequest{Size: 50000, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr}
			k.say(g)
			k.c.InputEOF(0)
			n := 0
			for _, s := range k.hear() {
				n += len(s.Payload)
			}
			return fmt.Sprintf("%d octets, %v", n, k.c.State())
		},
		sound: "50000 octets, closed", defective: "0 octets, closed",
	},
	"NoStartupTerminate": {
		talk: func(t *testing.T, h *host) string {
			c, err := h.nic.Connect(h.qp, ConnParam{IRD: 4, ORD: 4})
			if err != nil {
				t.Fatal(err)
			}
			p := newPipe(t, c, nil)
			p.take(0)
			if err := h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
				t.Fatal(err)
			}
			p.give(0, unhex(t, replyFrame+crcEnhanced))
			return fmt.Sprintf("%d octets, reset %v", len(p.take(0)), p.gone[0])
		},
		sound: "28 octets, reset false", defective: "0 octets, reset true",
	},
	"BusyCloseIsIdle": {
		talk: func(t *testing.T, h *host) string {
			k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
			r, _ := h.region(8, allAccess)
			h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
			k.hear()
			k.c.InputEOF(0) // before the answer
			k.hear()
			return fmt.Sprintf("%q %v", poll(h.sendCQ), h.qp.State())
		},
		sound: `["1 WR_FLUSH_ERR"] IBV_QPS_ERR`, defective: `["1 WR_FLUSH_ERR"] IBV_QPS_INIT`,
	},
	"TerminateUnreported": {
		talk: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			h.recv(1)
			g := segment(wire.OpTerminate, 1, nil)
			g.Terminate.Error = wire.TermProtAccess
			k.say(g)
			var wc [1]verbs.WC
			n, _ := h.recvCQ.Poll(wc[:])
			_, _, ok := h.qp.Terminate()
			return fmt.Sprintf("%v %d %#x %v", h.events(), n, wc[0].VendorErr, ok)
		},
		sound: "[IBV_EVENT_QP_FATAL] 1 0xc0000102 true", defective: "[] 1 0x0 false",
	},
}

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	typ := reflect.TypeFor[Defects]()
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Type.Kind() == reflect.Bool && defectCases[f.Name].talk == nil {
			t.Errorf("defect %s has no conversation that shows it", f.Name)
		}
	}
	for name, c := range defectCases {
		if c.sound == c.defective {
			t.Errorf("%s: the conversation would not tell a defective NIC from a sound one", name)
		}
		for _, on := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, on), func(t *testing.T) {
				h := newHost(t, func(cfg *Config, _ *QPConfig) {
					if err := cfg.Defects.Set(name, on); err != nil {
						t.Fatal(err)
					}
				})
				want := c.sound
				if on {
					want = c.defective
				}
				if got := c.talk(t, h); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

func TestDefectsReachTheLayerTheyAreOf(t *testing.T) {
	talk := func(defect string) string {
		h := newHost(t, func(cfg *Config, _ *QPConfig) {
			if defect == "" {
				return
			}
			if err := cfg.Defects.Set(defect, true); err != nil {
				t.Fatal(err)
			}
		})
		c := h.nic.Incoming()
		k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
		k.give(0, unhex(t, requestFrame+crcEnhanced))
		if err := c.Accept(0, h.qp, ConnParam{IRD: 4, ORD: 4}); err != nil {
			t.Fatal(err)
		}
		h.send(verbs.SendWR{Opcode: verbs.OpSend})
		reply := k.take(0)
		early := len(reply) > wire.StartFrameLen+wire.EnhancedLen // mpa.Defects.NoFence
		k.start(reply)
		g := segment(wire.OpSend, 1, nil)
		k.say(g) // nobody has posted a receive
		out := k.take(0)
		swapped := strings.Contains(fmt.Sprintf("%x", out), "2102") // iwarp.Defects.TermBitsSwapped
		return fmt.Sprint(early, swapped, h.nic.Mem.Defects.WindowBounds)
	}
	for defect, want := range map[string]string{
		"": "false false false", "NoFence": "true false false", "TermBitsSwapped": "false true false", "WindowBounds": "false false true",
	} {
		if got := talk(defect); got != want {
			t.Errorf("%q: %s, want %s", defect, got, want)
		}
	}
}

// switches lists the fields of a struct of defects, straight from its type.
func switches(t *testing.T, typ reflect.Type) (names []string) {
	t.Helper()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type.Kind() == reflect.Struct {
			names = append(names, switches(t, f.Type)...)
			continue
		}
		if f.Type.Kind() != reflect.Bool || f.Tag.Get("imitates") == "" || f.Tag.Get("does") == "" {
			t.Errorf("%v.%s must be a bool with tags that say whose defect it is and what it does", typ, f.Name)
		}
		names = append(names, f.Name)
	}
	return names
}

func TestDefectNamesAreTheSwitches(t *testing.T) {
	names := switches(t, reflect.TypeFor[Defects]())
	var listed []string
	for _, info := range AllDefects() {
		listed = append(listed, info.Name)
	}
	if !slices.Equal(listed, names) {
		t.Errorf("listed are %q, want %q", listed, names)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("of %d names %d are used twice: Set could not tell them apart", len(names), len(names)-len(unique))
	}
	for _, name := range names {
		var q Defects
		if err := q.Set(name, true); err != nil || !slices.Equal(q.Names(), []string{name}) {
			t.Errorf("after Set(%s): %v, %q", name, err, q.Names())
		}
		if err := q.Set(name, false); err != nil || q != (Defects{}) {
			t.Errorf("Set(%s) back: %v, %q still on", name, err, q.Names())
		}
	}
	var q Defects
	if err := q.Set("finDrops", true); !errors.Is(err, verbs.ErrNotFound) || !strings.Contains(err.Error(), "FINDropsAnswers") {
		t.Errorf("%v", err)
	}
}
