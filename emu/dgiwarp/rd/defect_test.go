package rd

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// defectCase is a conversation of a layer x, that may have a defect, with a sound one
// y. What it shows reads one way of a sound layer and another way of one with the
// defect.
type defectCase struct {
	talk             func(*talking) string
	sound, defective string
}

// talking is such a conversation. What x puts on the wire is in said.
type talking struct {
	*network
	x, y *host
	said []wire.Packet
	lose func(from *host, k *wire.Packet) bool
}

func newTalking(t testing.TB, q Defects) *talking {
	c := &talking{network: newNetwork(t, 1, trouble{})}
	c.x, c.y = c.host(Config{Defects: q, Limits: Limits{Peers: 3}}), c.host(Config{})
	c.cut = func(from, _ *host, k *wire.Packet) bool {
		if from == c.x {
			c.said = append(c.said, *k)
		}
		return c.lose != nil && c.lose(from, k)
	}
	return c
}

// meet has x and y know each other: each has sent the other a segment.
func (c *talking) meet() {
	c.x.send(c.y, 10)
	c.sleep(time.Millisecond)
	c.y.send(c.x, 10)
	c.sleep(5 * time.Millisecond)
	c.said = nil
}

// come has x get a packet with data of y's present flow, made up.
func (c *talking) come(seq wire.Seq, edits ...func(*wire.Packet)) {
	p := c.y.layer.peers[c.y.key(c.x)]
	k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1), ULPDU: content(nil, uint32(seq), 10)}
	k.Flags = wire.FlagData
	k.Data = wire.Data{Epoch: p.epoch, Seq: seq, Timestamp: uint32(seq) + 100}
	for _, e := range edits {
		e(&k)
	}
	c.x.deliver(c.y.addr, k.Append(nil), false)
}

// answer has x get a packet of y's about x's present flow.
func (c *talking) answer(k wire.Packet) {
	k.Header.Version, k.DstQP, k.SrcQP = wire.Version, testQP, testQP
	c.x.deliver(c.y.addr, k.Append(nil), false)
}

func (c *talking) got() []uint32 { return c.x.got[c.x.key(c.y)] }

// count is how many of what x said are so.
func (c *talking) count(is func(*wire.Packet) bool) (n int) {
	for i := range c.said {
		if is(&c.said[i]) {
			n++
		}
	}
	return n
}

func isData(k *wire.Packet) bool { return k.Kind == wire.KindRD && k.Flags.Has(wire.FlagData) }
func isAck(k *wire.Packet) bool  { return k.Kind == wire.KindRD && k.Flags.Has(wire.FlagAck) }
func silent(from *talking) func(*host, *wire.Packet) bool {
	return func(h *host, _ *wire.Packet) bool { return h == from.y }
}

var startDefects = map[string]defectCase{
	"LivesAlike": {
		talk: func(c *talking) string {
			c.x.send(c.y, 10)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.said[0].Data.Epoch == 1, c.said[0].Data.Incarnation == 1)
		},
		sound: "false false", defective: "true true",
	},
	"NoChallenge": {
		talk: func(c *talking) string {
			c.y.send(c.x, 10)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.x.layer.Count.SentChallenges, c.got())
		},
		sound: "1 [0]", defective: "0 [0]",
	},
	"CookieUnbound": {
		talk: func(c *talking) string {
			l := c.x.layer
			k := Key{Remote: c.y.addr, Local: testQP, RemoteQP: testQP}
			other := k
			other.Remote = netip.AddrPortFrom(k.Remote.Addr(), 9)
			return fmt.Sprint(l.cookie(&k, nil, 1, 5) == l.cookie(&other, nil, 2, 99))
		},
		sound: "false", defective: "true",
	},
	"AnswersChallenged": {
		talk: func(c *talking) string {
			c.x.send(c.y, 10)
			c.sleep(time.Millisecond)
			c.y.send(c.x, 10)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.x.layer.Count.SentChallenges, c.got())
		},
		sound: "0 [0]", defective: "1 [0]",
	},
	"OldFlowKept": {
		talk: func(c *talking) string {
			c.y.send(c.x, 10)
			c.sleep(time.Millisecond)
			c.y.start() // another life, another flow
			c.y.send(c.x, 10)
			c.said = nil
			c.sleep(time.Millisecond)
			a := c.said[len(c.said)-1].Ack
			return fmt.Sprint(c.got(), c.x.begins[c.x.key(c.y)], a.Next, a.Epoch == c.y.layer.peers[c.y.key(c.x)].epoch)
		},
		sound: "[0 0] 2 1 true", defective: "[0] 1 1 true",
	},
	"WindowBeforeProof": {
		talk: func(c *talking) string {
			c.lose = silent(c)
			for range 5 {
				c.x.send(c.y, 10)
			}
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.count(isData))
		},
		sound: "1", defective: "5",
	},
	"AnyEpochHeeded": {
		talk: func(c *talking) string {
			c.lose = silent(c)
			c.x.send(c.y, 10)
			c.sleep(time.Millisecond)
			c.answer(wire.Packet{Header: wire.Header{Kind: wire.KindRefusal}, Refusal: wire.Refusal{Epoch: 99, Reason: wire.ReasonState}})
			return fmt.Sprint(c.x.failed)
		},
		sound: "[]", defective: "[peer refuses]",
	},
}

var dataDefects = map[string]defectCase{
	"DeliversAsTheyCome": {
		talk: func(c *talking) string {
			c.meet()
			c.come(2)
			c.come(1)
			c.come(1)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.got(), c.said[len(c.said)-1].Ack.Next)
		},
		sound: "[0 1 2] 3", defective: "[0 2 1 1] 3",
	},
	"GapsForgotten": {
		talk: func(c *talking) string {
			c.meet()
			c.come(2)
			c.come(1)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.got(), c.said[len(c.said)-1].Ack.Next)
		},
		sound: "[0 1 2] 3", defective: "[0 1] 3",
	},
	"BeyondWindowTaken": {
		talk: func(c *talking) string {
			c.meet()
			c.come(5)
			c.come(300)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.got(), c.said[len(c.said)-1].Ack.Next)
		},
		sound: "[0] 1", defective: "[0 300] 301",
	},
	"AcksLazy": {
		talk: func(c *talking) string {
			c.meet()
			c.come(2)
			c.come(1, func(k *wire.Packet) { k.Flags |= wire.FlagAckNow })
			c.sleep(990 * time.Microsecond)
			early := c.count(isAck)
			c.sleep(20 * time.Microsecond)
			return fmt.Sprint(early, c.count(isAck))
		},
		sound: "1 1", defective: "0 1",
	},
	"EchoLatest": {
		talk: func(c *talking) string {
			c.meet()
			c.come(1)
			c.come(2)
			c.sleep(time.Millisecond)
			return fmt.Sprint(c.said[len(c.said)-1].Ack.Echo)
		},
		sound: "101", defective: "102",
	},
}

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	cases := map[string]defectCase{}
	for _, part := range []map[string]defectCase{startDefects, dataDefects, lossDefects, idleDefects} {
		maps.Copy(cases, part)
	}
	fields := reflect.TypeFor[Defects]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		c, ok := cases[name]
		if !ok {
			t.Errorf("no conversation shows %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			if got := c.talk(newTalking(t, Defects{})); got != c.sound {
				t.Errorf("sound: %s, want %s", got, c.sound)
			}
			var q Defects
			reflect.ValueOf(&q).Elem().Field(i).SetBool(true)
			if got := c.talk(newTalking(t, q)); got != c.defective {
				t.Errorf("defective: %s, want %s", got, c.defective)
			}
		})
	}
	if len(cases) != fields.NumField() {
		t.Errorf("%d conversations for %d defects", len(cases), fields.NumField())
	}
}
