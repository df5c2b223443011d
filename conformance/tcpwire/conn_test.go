package tcpwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// bench is a connection, and what it has sent.
type bench struct {
	*conn
	now time.Time
	log []segment
}

const theirs = seq(1<<32 - 10) // the first number of the other side

// established is a connection that the other side has answered, from first on.
func established(t testing.TB, first seq) *bench {
	t.Helper()
	b := &bench{now: time.Unix(1000, 0)}
	b.conn = &conn{local: near, remote: far, announce: 1460, mss: 1, out: func(s *segment) {
		s.payload = bytes.Clone(s.payload)
		b.log = append(b.log, *s)
	}}
	b.open(b.now, first)
	b.tell(&segment{flags: syn | ack, seq: theirs - 1, ack: first + 1, window: 1000, mss: 100})
	if !b.conn.established || len(b.log) != 2 || b.log[0].flags != syn || b.log[0].mss != 1460 || b.log[1].flags != ack || b.log[1].ack != theirs {
		t.Fatalf("the handshake: %+v", b.log)
	}
	b.log = nil
	return b
}

func (b *bench) tell(s *segment) { b.handle(b.now, s) }

// data is what was sent since, a segment each.
func (b *bench) data() (all []string) {
	for _, s := range b.log {
		if len(s.payload) > 0 {
			all = append(all, string(s.payload))
		}
	}
	b.log = nil
	return all
}

// heard is what can be read now.
func (b *bench) heard() (all string) {
	for {
		octets, err := b.read()
		if octets == nil || err != nil {
			return all
		}
		all += string(octets)
	}
}

func (b *bench) say1(text string, at int) {
	b.tell(&segment{flags: ack, seq: theirs.add(at), ack: b.una, window: 1000, payload: []byte(text)})
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
}

// What comes late, twice, overlapping and across the end of the numbers is put together.
func TestOctetsArePutTogether(t *testing.T) {
	b := established(t, 7)
	for _, s := range []struct {
		text string
		at   int
	}{{"cdef", 2}, {"fghij", 5}, {"cd", 2}, {"xyz", 23}, {"ab", 0}, {"ab", 0}, {"bcdefghijk", 1}, {"lmnopqrstuvwx", 11}} {
		b.say1(s.text, s.at)
	}
	if got := b.heard(); got != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("%q", got)
	}
	if last := b.log[len(b.log)-1]; last.ack != theirs.add(26) {
		t.Errorf("acknowledged up to %d", last.ack-theirs)
	}
	// A FIN counts when all before it has come.
	b.tell(&segment{flags: ack | fin, seq: theirs.add(28), payload: []byte("3"), window: 1000, ack: b.una})
	if _, err := b.read(); err != nil {
		t.Errorf("ended early: %v", err)
	}
	b.say1("12", 26)
	if got := b.heard(); got != "123" {
		t.Errorf("%q", got)
	}
	if _, err := b.read(); !errors.Is(err, io.EOF) {
		t.Errorf("%v behind the FIN", err)
	}
}

// What is not acknowledged goes again, later and later, and at last nobody is there.
func TestRetransmission(t *testing.T) {
	b := established(t, 1<<32-5) // which wraps around
	b.say(b.now, []byte("one"))
	b.say(b.now, []byte("two"))
	same(t, "first", b.data(), "one", "two")
	b.tick(b.now.Add(firstBackoff - 1))
	same(t, "too early", b.data())
	b.now = b.now.Add(firstBackoff)
	b.tick(b.now)
	same(t, "again", b.data(), "one")
	b.tell(&segment{flags: ack, seq: theirs, ack: b.una + 4, window: 1000}) // "one", and half of "two"
	same(t, "the rest, which may be lost too", b.data(), "wo")
	b.now = b.now.Add(firstBackoff)
	b.tick(b.now)
	same(t, "once more", b.data(), "wo")
	for range 3 {
		b.tell(&segment{flags: ack, seq: theirs, ack: b.una, window: 1000})
	}
	same(t, "behind three that say nothing new", b.data(), "wo")
	for range 2 * maxTries {
		b.now = b.now.Add(lastBackoff)
		b.tick(b.now)
	}
	if !errors.Is(b.err, errSilent) || b.log[len(b.log)-1].flags&rst == 0 {
		t.Errorf("%v, and the last was %v", b.err, &b.log[len(b.log)-1])
	}
}

// No more goes than the other side has room for; of its window, when it opens, is asked.
func TestWindow(t *testing.T) {
	b := established(t, 7)
	b.tell(&segment{flags: ack, seq: theirs, ack: b.una, window: 3})
	b.say(b.now, []byte("hello"))
	same(t, "what fits", b.data(), "hel")
	b.tell(&segment{flags: ack, seq: theirs, ack: b.una + 3, window: 0})
	same(t, "no room", b.data())
	b.now = b.now.Add(firstBackoff)
	b.tick(b.now)
	same(t, "asked", b.data(), "l")
	b.tell(&segment{flags: ack, seq: theirs, ack: b.una, window: 100})
	same(t, "room", b.data(), "lo")
}

func TestResetsThatCount(t *testing.T) {
	for _, c := range []struct {
		seq    seq
		counts bool
	}{{theirs, true}, {theirs.add(100), true}, {theirs - 1, false}, {theirs.add(1 << 17), false}} {
		b := established(t, 7)
		b.tell(&segment{flags: rst, seq: c.seq})
		if errors.Is(b.err, conformance.ErrReset) != c.counts {
			t.Errorf("a RST at %d: %v", c.seq-theirs, b.err)
		}
	}
}

// Whatever the other side sends, what is read is what it said, and nothing crashes. The
// script is of segments: where in the stream, how long, which flags.
func FuzzConn(f *testing.F) {
	f.Add([]byte{0, 0, 5, 0x10, 0, 5, 5, 0x10})
	f.Add([]byte{0, 9, 9, 0x11, 0, 0, 9, 0x10, 0, 1, 3, 0x14})
	stream := make([]byte, 1<<16)
	for i := range stream {
		stream[i] = byte(i * 7 / 3)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		b := established(t, 1<<32-40)
		b.say(b.now, bytes.Repeat([]byte("said"), 30))
		if err := b.holdBack([]byte("held back")); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for ; len(script) >= 4; script = script[4:] {
			at, n, fl := int(binary.BigEndian.Uint16(script)), int(script[2]), flags(script[3]&^byte(syn))
			s := &segment{seq: theirs.add(at), ack: b.una.add(n % 7), flags: fl | ack, window: uint16(n) * 3, payload: stream[at:min(len(stream), at+n)]}
			b.tell(s)
			_ = b.release(b.now, n%9, 9)
			b.now = b.now.Add(time.Duration(n) * time.Millisecond)
			b.tick(b.now)
			if octets, err := b.read(); err == nil {
				got = append(got, octets...)
			}
			b.log = b.log[:0]
		}
		for octets, err := b.read(); octets != nil && err == nil; octets, err = b.read() {
			got = append(got, octets...)
		}
		if !bytes.HasPrefix(stream, got) {
			t.Fatalf("%d octets were read that are not those that were said", len(got))
		}
		if b.una.sub(b.sent) > 0 || b.sent.sub(b.next) > 0 {
			t.Fatalf("acknowledged %d, sent %d, said %d", b.una, b.sent, b.next)
		}
	})
}
