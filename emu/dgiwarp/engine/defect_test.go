package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// defectCase is a conversation of a QP x, whose NIC may have a defect, with y of a
// sound one. What it shows reads one way of a sound NIC and another way of one with
// the defect. Its name is the defect's, or "defect on service".
type defectCase struct {
	reliable         bool
	talk             func(*duo) string
	sound, defective string
}

// duo is two QPs that talk.
type duo struct {
	*world
	x, y *end
	said []wire.Packet // by x
	from []netip.AddrPort
	mute func(k *wire.Packet) bool // of y's packets, those that are lost
}

func newDuo(t testing.TB, reliable bool, q Defects) *duo {
	c := &duo{world: newWorld(t)}
	c.world.see = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Src.Addr() == c.x.h.addr {
			c.said, c.from = append(c.said, *k), append(c.from, d.Src)
		}
		return d.Src.Addr() == c.y.h.addr && c.mute != nil && c.mute(k)
	}
	c.x = c.host(func(cfg *Config) { cfg.Defects = q }).own(reliable)
	c.y = c.host().own(reliable)
	return c
}

// rest lets time pass and returns how what is posted on e has ended.
func (c *duo) rest(e *end, d time.Duration) string {
	c.run(d)
	c.poll()
	var all []string
	for _, wc := range e.done {
		s := strings.TrimPrefix(wc.Status.String(), "IBV_WC_")
		if wc.Status == verbs.WCSuccess {
			s = fmt.Sprintf("%dB", wc.ByteLen)
		}
		all = append(all, fmt.Sprintf("%d:%s", wc.WRID, s))
	}
	e.done = nil
	return strings.Join(all, " ")
}

// udp has x's NIC get a packet of UD.
func (c *duo) udp(segment []byte, edits ...func(*link.Datagram, *wire.Packet)) {
	k := wire.Packet{Header: wire.NewHeader(wire.KindUD, c.x.num, c.y.num, testKey), ULPDU: segment}
	d := link.Datagram{Src: netip.AddrPortFrom(c.y.h.addr, wire.Port), Dst: netip.AddrPortFrom(c.x.h.addr, c.x.h.nic.cfg.Port)}
	for _, e := range edits {
		e(&d, &k)
	}
	d.Payload = k.Append(nil)
	c.x.h.nic.Input(c.now, &d)
}

func (c *duo) count(kind wire.Kind) (n int) {
	for i := range c.said {
		if c.said[i].Kind == kind {
			n++
		}
	}
	return n
}

// events is how many x's NIC has reported.
func (c *duo) events() (n int) {
	for _, ok := c.x.h.nic.NextEvent(); ok; _, ok = c.x.h.nic.NextEvent() {
		n++
	}
	return n
}

func sendSegment(msn ddp.MSN, mo uint32, n int, last bool) []byte {
	h := ddp.Header{Control: ddp.NewControl(ddp.OpSend, last), Untagged: ddp.Untagged{MSN: msn, MO: mo}}
	return append(h.Append(nil), make([]byte, n)...)
}

func (c *duo) taggedSegment(op ddp.Opcode, off uint64, body []byte, last bool) []byte {
	h := ddp.Header{Control: ddp.NewControl(op, last), Tagged: ddp.Tagged{STag: ddp.STag(c.x.h.mr.Key), TO: c.x.h.mr.Addr + off}}
	h.Control.Tagged = true
	return append(h.Append(nil), body...)
}

func (c *duo) recordSegment(msn, mo uint32, length uint32, n int, last bool) []byte {
	h := wire.WriteRecord{MSN: msn, MO: mo, Length: length}
	return c.taggedSegment(wire.OpWriteRecord, uint64(mo), append(h.Append(nil), make([]byte, n)...), last)
}

// remote names the memory of an end from off on.
func remote(e *end, off int) verbs.Remote {
	return verbs.Remote{Addr: e.h.mr.Addr + e.base + uint64(off), RKey: verbs.RKey(e.h.mr.Key)}
}

// ranges is what the record in x's first receive says.
func (c *duo) ranges() []Range {
	r, _ := ParseRecord(c.x.bytes(recvAt+verbs.GRHLen, 200))
	return r.Ranges
}

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	cases := map[string]defectCase{}
	for _, part := range []map[string]defectCase{addressDefects, pieceDefects, taggedDefects, errorDefects, flowDefects, segmentDefects} {
		maps.Copy(cases, part)
	}
	own := 0
	fields := reflect.TypeFor[Defects]()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Type.Kind() != reflect.Bool {
			continue // of others, who have their own tests
		}
		own++
		name := fields.Field(i).Name
		if _, ok := cases[name]; !ok {
			t.Errorf("no conversation shows %s", name)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.talk(newDuo(t, c.reliable, Defects{})); got != c.sound {
				t.Errorf("sound: %s, want %s", got, c.sound)
			}
			var q Defects
			defect, _, _ := strings.Cut(name, " on ")
			if err := q.Set(defect, true); err != nil {
				t.Fatal(err)
			}
			if got := c.talk(newDuo(t, c.reliable, q)); got != c.defective {
				t.Errorf("defective: %s, want %s", got, c.defective)
			}
		})
	}
	if own < 35 {
		t.Errorf("%d defects", own)
	}
}

// Those of the layers below are switched on by the same names.
func TestDefectsOfOtherLayers(t *testing.T) {
	var q Defects
	for _, name := range []string{"NoChallenge", "CQErrRepeats", "WindowBounds"} {
		if err := q.Set(name, true); err != nil {
			t.Fatal(err)
		}
	}
	n, err := New(Config{GIDs: hostGIDs(false, 1), Defects: q})
	if err != nil || !n.Defects.CQErrRepeats || !n.Mem.Defects.WindowBounds || !n.cfg.Defects.Flows.NoChallenge {
		t.Errorf("%v: %q", err, q.Names())
	}
	seen := map[string]bool{}
	for _, info := range AllDefects() {
		if seen[info.Name] || info.Does == "" || info.Imitates == "" {
			t.Errorf("%s: twice, or it does not say what it does", info.Name)
		}
		seen[info.Name] = true
	}
}
