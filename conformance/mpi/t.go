package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/mpi"
)

// T is what a case does as one rank: the calls of a communicator, and words that make
// calls and look at what came of them. What is not as it must be ends the rank.
type T struct {
	Comm
	w World
}

// on is the same rank in another communicator.
func (t *T) on(c Comm) *T { return &T{c, t.w} }

// only runs f on one rank.
func (t *T) only(rank int, f func()) {
	if t.Rank() == rank {
		f()
	}
}

// check ends the rank unless something is so.
func (t *T) check(is bool, want, format string, args ...any) {
	if !is {
		panic(ended{conformance.Violatedf(want, format, args...)})
	}
}

// ok ends the rank if a call failed.
func (t *T) ok(call string, err error) {
	t.check(err == nil, call+" without an error", "%v", err)
}

// fails ends the rank unless a call failed with an error of a class.
func (t *T) fails(call string, err, class error) {
	t.check(errors.Is(err, class), fmt.Sprintf("an error of class %q of %s", class, call), "%v", err)
}

// data is n bytes that belong to an id: all of them differ from those of other ids, in
// nearly every place.
func data(id, n int) []byte {
	b := make([]byte, (n+7)&^7)
	x := uint64(id)*0x9e3779b97f4a7c15 + 1
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	if len(b) > 0 {
		b[0] = byte(id) // so that even one byte tells ids apart
	}
	return b[:n]
}

// same ends the rank unless two contents are the same.
func (t *T) same(what string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.check(false, fmt.Sprintf("%s to be the %d bytes that were sent", what, len(want)), "%d bytes that differ from byte %d on: %x, not %x",
		len(got), at, got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])
}

// guard is how many bytes beside a buffer are watched, blank what they are; it is odd, so
// that buffers are not aligned.
const (
	guard = 37
	blank = 0xb5
)

// room is a buffer with a guard on both sides.
type room struct {
	all []byte
	buf []byte
}

func newRoom(n int) *room {
	all := bytes.Repeat([]byte{blank}, n+2*guard)
	return &room{all, all[guard : guard+n : guard+n]}
}

// holds ends the rank unless the room holds exactly this, and nothing else was written.
func (t *T) holds(what string, r *room, want []byte) {
	t.same(what, r.buf[:len(want)], want)
	for i, b := range r.all {
		if in := i - guard; (in < 0 || in >= len(want)) && b != blank {
			t.check(false, "nothing written outside of "+what, "byte %d written to %#x, of a buffer of %d with %d received", in, b, len(r.buf), len(want))
		}
	}
}

// is ends the rank unless a status says this.
func (t *T) is(what string, st Status, source, tag, count int) {
	want := Status{Source: source, Tag: tag, Count: count}
	t.check(st == want, fmt.Sprintf("%s with the status %+v", what, want), "%+v", st)
}

// empty is the status of what was not under way.
var empty = Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// send sends, in standard mode.
func (t *T) send(d []byte, dest, tag int) { t.ok("Send", t.Send(d, dest, tag)) }

// gets receives a message into more room than it needs, and looks at all of it.
func (t *T) gets(want []byte, source, tag int) Status {
	r := newRoom(len(want) + 16)
	st, err := t.Recv(r.buf, source, tag)
	t.ok("Recv", err)
	t.holds("the message", r, want)
	t.check(st.Count == len(want), fmt.Sprintf("a count of %d", len(want)), "%+v", st)
	if source != mpi.AnySource {
		t.check(st.Source == source, fmt.Sprintf("the source %d", source), "%+v", st)
	}
	if tag != mpi.AnyTag {
		t.check(st.Tag == tag, fmt.Sprintf("the tag %d", tag), "%+v", st)
	}
	return st
}

// pending is a request with its buffer.
type pending struct {
	Request
	room *room
}

// begin is what a call that begins something returns.
func (t *T) begin(call string, r Request, err error) Request {
	t.ok(call, err)
	t.check(r != nil, call+" with a request", "nil")
	return r
}

func (t *T) isend(d []byte, dest, tag int) Request {
	r, err := t.Isend(d, dest, tag)
	return t.begin("Isend", r, err)
}

func (t *T) issend(d []byte, dest, tag int) Request {
	r, err := t.Issend(d, dest, tag)
	return t.begin("Issend", r, err)
}

// irecv begins a receive of at most n bytes.
func (t *T) irecv(n, source, tag int) *pending {
	room := newRoom(n)
	r, err := t.Irecv(room.buf, source, tag)
	return &pending{t.begin("Irecv", r, err), room}
}

// wait waits for what must not fail.
func (t *T) wait(r Request) Status {
	st, err := r.Wait()
	t.ok("Wait", err)
	return st
}

// arrives waits for a receive, and looks at what it got.
func (t *T) arrives(p *pending, want []byte) Status {
	st := t.wait(p.Request)
	t.check(!st.Cancelled && st.Count == len(want), fmt.Sprintf("a receive of %d bytes", len(want)), "%+v", st)
	t.holds("the received message", p.room, want)
	return st
}

func (t *T) waitAll(rs ...Request) []Status {
	sts, err := t.w.WaitAll(rs)
	t.ok("WaitAll", err)
	t.check(len(sts) == len(rs), fmt.Sprintf("%d statuses of WaitAll", len(rs)), "%d", len(sts))
	return sts
}

// pendingYet ends the rank if a request is complete.
func (t *T) pendingYet(what string, r Request) {
	_, done, err := r.Test()
	t.ok("Test", err)
	t.check(!done, what+" not to be complete yet", "complete")
}

// sign is the tag of words between ranks that say no more than that something has
// happened.
const sign = 31000

// tell and hear are such a word.
func (t *T) tell(ranks ...int) {
	for _, rank := range ranks {
		t.ok("Send of a word", t.Send([]byte{sign & 0xff}, rank, sign))
	}
}

func (t *T) hear(ranks ...int) {
	for _, rank := range ranks {
		var b [1]byte
		_, err := t.Recv(b[:], rank, sign)
		t.ok("Recv of a word", err)
	}
}

// dup is a communicator beside this one.
func (t *T) dup() *T {
	c, err := t.Dup()
	t.ok("Dup", err)
	t.check(c != nil, "a communicator of Dup", "nil")
	return t.on(c)
}

func (t *T) barrier() { t.ok("Barrier", t.Barrier()) }

// linger lets time pass, inside the runtime and outside of it, so that what could happen
// wrongly has the time to. Nothing may depend on how long it is.
func (t *T) linger() {
	for range 20 {
		_, _, err := t.Iprobe(mpi.AnySource, mpi.TagMax-1)
		t.ok("Iprobe", err)
		t.w.Compute(20 * time.Microsecond)
	}
}

// patience is after how long something that must happen has not.
const patience = 10 * time.Second

// until asks again and again, as a program that has other things to do as well.
func (t *T) until(what string, is func() bool) {
	pause := time.Microsecond
	for began := t.w.Wtime(); !is(); t.w.Compute(pause) {
		t.check(t.w.Wtime()-began < patience, what+" in the end", "not within %v", patience)
		pause = min(2*pause, time.Millisecond)
	}
}

// stillWorks shows that a communicator can be used: everybody sends to everybody. It
// begins with a barrier, so that nothing of it is seen by those who still look around.
func (t *T) stillWorks() {
	t.barrier()
	n := t.Size()
	for k := range n {
		to, from := (t.Rank()+k)%n, (t.Rank()+n-k)%n
		mine, theirs := data(t.Rank()*n+to, 40), data(from*n+t.Rank(), 40)
		r := t.irecv(len(theirs), from, sign-1)
		t.send(mine, to, sign-1)
		t.arrives(r, theirs)
	}
	t.barrier()
}

// every are the sizes about which protocols change their minds: small ones, those around
// powers of two, and large ones.
func every() []int {
	sizes := []int{0, 1, 7, 8, 9, 31, 63, 64, 65}
	for n := 128; n <= 1<<20; n *= 2 {
		sizes = append(sizes, n-1, n, n+1)
	}
	return sizes
}

// few are some of them, for cases that need only small and large.
var few = []int{0, 8, 1000, 5000, 70_000}

// large is more than any runtime sends without asking.
const large = 300_000

// takes receives a message that a probe has taken out.
func (t *T) takes(m Message, want []byte) Status {
	t.check(m != nil, "a message", "nil")
	r := newRoom(len(want))
	st, err := m.Recv(r.buf)
	t.ok("Message.Recv", err)
	t.check(st.Count == len(want), fmt.Sprintf("a count of %d", len(want)), "%+v", st)
	t.holds("the message", r, want)
	return st
}
