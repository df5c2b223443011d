package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/mpi"
)

// T runs a case as one rank. It has the calls of a communicator, and helpers that call and check
// results. Helpers whose names begin with expect or must end the rank on a violation.
type T struct {
	Comm
	w       World
	windows *[]*W // allocated by window and not freed
}

// inComm returns the same rank in another communicator.
func (t *T) inComm(c Comm) *T { return &T{c, t.w, t.windows} }

// other returns the other rank of two.
func (t *T) other() int { return 1 - t.Rank() }

// byRank returns the body of a case in which rank i runs the i-th function, if there is one.
func byRank(programs ...func(*T)) func(*T) {
	return func(t *T) {
		if t.Rank() < len(programs) {
			programs[t.Rank()](t)
		}
	}
}

// onSizes returns the body of a case: for sizes[i] = n, rank 0 runs send and rank 1 runs receive.
func onSizes(sizes []int, send, receive func(t *T, i, n int)) func(*T) {
	return func(t *T) {
		for i, n := range sizes {
			byRank(func(t *T) { send(t, i, n) }, func(t *T) { receive(t, i, n) })(t)
		}
	}
}

// sendSize is the sender of onSizes that sends message i with tag i.
func sendSize(t *T, i, n int) { t.send(data(i, n), 1, i) }

// onRank runs f on one rank.
func (t *T) onRank(rank int, f func()) {
	if t.Rank() == rank {
		f()
	}
}

// check ends the rank unless ok, with a violation: want describes the expected behaviour, and
// format and args the observed one.
func (t *T) check(ok bool, want, format string, args ...any) {
	if !ok {
		panic(rankFailed{conformance.Violatedf(want, format, args...)})
	}
}

// must ends the rank if a call failed.
func (t *T) must(call string, err error) {
	t.check(err == nil, call+" without an error", "%v", err)
}

// result returns the result of a call, and ends the rank if the call failed:
//
//	st := result(t.Probe(0, 4))(t, "Probe")
func result[A any](a A, err error) func(t *T, call string) A {
	return func(t *T, call string) A {
		t.must(call, err)
		return a
	}
}

// result2 returns the two results of a call, and ends the rank if the call failed. The rank and the
// call's name are arguments of a second call, because Go passes on several results only if there is
// no other argument.
func result2[A, B any](a A, b B, err error) func(t *T, call string) (A, B) {
	return func(t *T, call string) (A, B) {
		t.must(call, err)
		return a, b
	}
}

// started returns the request of a call, and ends the rank if the call failed or returned nil.
func started(r Request, err error) func(t *T, call string) Request {
	return func(t *T, call string) Request {
		t.must(call, err)
		t.check(r != nil, call+" with a request", "nil")
		return r
	}
}

// errorOf returns the error of a call, without its other result.
func errorOf[A any](_ A, err error) error { return err }

// mustFail ends the rank unless a call failed with an error of a class.
func (t *T) mustFail(call string, err, class error) {
	t.check(errors.Is(err, class), fmt.Sprintf("an error of class %q of %s", class, call), "%v", err)
}

// data returns n bytes of payload for an id. Payloads of different ids differ in nearly every byte.
func data(id, n int) []byte { return Payload(id, n) }

// expectEqual ends the rank unless got equals want. The violation calls got by this name.
func (t *T) expectEqual(name string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.check(false, fmt.Sprintf("%s to be the %d bytes that were sent", name, len(want)), "%d bytes that differ from byte %d on: %x, not %x",
		len(got), at, got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])
}

// guardedBuf is a buffer with guard bytes on both sides.
type guardedBuf struct {
	all Guarded
	buf []byte
}

// newGuardedBuf returns a buffer of n bytes with guard bytes around it.
func newGuardedBuf(n int) *guardedBuf {
	all := NewGuarded(n)
	return &guardedBuf{all, all.Buf()}
}

// expectBuffer ends the rank unless the buffer begins with want, and nothing else was written.
func (t *T) expectBuffer(name string, r *guardedBuf, want []byte) {
	t.expectEqual(name, r.buf[:len(want)], want)
	t.expectUnwritten(name, r, len(want))
}

// expectUnwritten ends the rank if a byte was written outside of the first n bytes of r.buf.
func (t *T) expectUnwritten(name string, r *guardedBuf, n int) {
	offset, value, written := r.all.WrittenOutside(n)
	t.check(!written, "nothing written outside of "+name, "byte %d written to %#x, of a buffer of %d with %d received",
		offset, value, len(r.buf), n)
}

// expectStatus ends the rank unless a status has these fields.
func (t *T) expectStatus(name string, st Status, source, tag, count int) {
	want := Status{Source: source, Tag: tag, Count: count}
	t.check(st == want, fmt.Sprintf("%s with the status %+v", name, want), "%+v", st)
}

// empty is the status of an inactive request.
var empty = Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// send sends in standard mode.
func (t *T) send(d []byte, dest, tag int) { t.must("Send", t.Send(d, dest, tag)) }

// expectRecv receives a message into a larger buffer, and ends the rank unless it is want.
func (t *T) expectRecv(want []byte, source, tag int) Status {
	r := newGuardedBuf(len(want) + 16)
	st := result(t.Recv(r.buf, source, tag))(t, "Recv")
	t.expectBuffer("the message", r, want)
	t.check(st.Count == len(want), fmt.Sprintf("a count of %d", len(want)), "%+v", st)
	if source != mpi.AnySource {
		t.check(st.Source == source, fmt.Sprintf("the source %d", source), "%+v", st)
	}
	if tag != mpi.AnyTag {
		t.check(st.Tag == tag, fmt.Sprintf("the tag %d", tag), "%+v", st)
	}
	return st
}

// expectExchange sends d to dest while it receives a message from source, and ends the rank unless
// it receives want.
func (t *T) expectExchange(d []byte, dest int, want []byte, source int) {
	r := t.isend(d, dest, 1)
	t.expectRecv(want, source, 1)
	t.wait(r)
}

// expectSendrecv sends d and receives with one call of Sendrecv, and ends the rank unless the
// received message is want.
func (t *T) expectSendrecv(d []byte, dest, sendTag int, want []byte, source, recvTag int) {
	r := newGuardedBuf(len(want))
	st := result(t.Sendrecv(d, dest, sendTag, r.buf, source, recvTag))(t, "Sendrecv")
	t.expectStatus("Sendrecv", st, source, recvTag, len(want))
	t.expectBuffer("the message", r, want)
}

// pending is a receive with its buffer.
type pending struct {
	Request
	recvBuf *guardedBuf
}

func (t *T) isend(d []byte, dest, tag int) Request {
	return started(t.Isend(d, dest, tag))(t, "Isend")
}

func (t *T) issend(d []byte, dest, tag int) Request {
	return started(t.Issend(d, dest, tag))(t, "Issend")
}

// irecv starts a receive of at most n bytes.
func (t *T) irecv(n, source, tag int) *pending {
	room := newGuardedBuf(n)
	return &pending{started(t.Irecv(room.buf, source, tag))(t, "Irecv"), room}
}

// recvInit creates a persistent receive of at most n bytes.
func (t *T) recvInit(n, source, tag int) *pending {
	room := newGuardedBuf(n)
	return &pending{started(t.RecvInit(room.buf, source, tag))(t, "RecvInit"), room}
}

// start starts a persistent request.
func (t *T) start(r Request) { t.must("Start", r.Start()) }

// wait waits for a request that must not fail.
func (t *T) wait(r Request) Status {
	return result(r.Wait())(t, "Wait")
}

// expectWait waits for a receive, and ends the rank unless the message is want.
func (t *T) expectWait(p *pending, want []byte) Status {
	st := t.wait(p.Request)
	t.check(!st.Cancelled && st.Count == len(want), fmt.Sprintf("a receive of %d bytes", len(want)), "%+v", st)
	t.expectBuffer("the received message", p.recvBuf, want)
	return st
}

// startReceives starts n receives, and returns them and their requests.
func startReceives(n int, start func(i int) *pending) (receives []*pending, requests []Request) {
	for i := range n {
		receives = append(receives, start(i))
		requests = append(requests, receives[i].Request)
	}
	return receives, requests
}

// startAll starts n operations, and returns the result of start for each.
func startAll[R any](n int, start func(i int) R) []R {
	all := make([]R, n)
	for i := range all {
		all[i] = start(i)
	}
	return all
}

// sendUnexpected has rank 0 start n sends to rank 1, by calls of send, and rank 1 call receive
// after their messages have arrived without a posted receive.
func (t *T) sendUnexpected(n int, send func(i int) Request, receive func()) {
	side := t.dup() // its signals do not match the receives of the case
	if t.Rank() == 0 {
		rs := startAll(n, send)
		side.signal(1)
		t.waitAll(rs...)
	} else {
		side.awaitSignal(0)
		t.idle()
		receive()
	}
}

// expectInOrder makes rank 0 send messages of these sizes, which rank 1 must receive in order.
func (t *T) expectInOrder(sizes []int) {
	if t.Rank() == 0 {
		t.waitAll(startAll(len(sizes), func(i int) Request { return t.isend(data(i, sizes[i]), 1, 1) })...)
		return
	}
	for i, n := range sizes {
		t.expectRecv(data(i, n), 0, 1)
	}
}

// waitAll waits for requests that must not fail, and returns their statuses.
func (t *T) waitAll(rs ...Request) []Status {
	sts := result(t.w.WaitAll(rs))(t, "WaitAll")
	t.check(len(sts) == len(rs), fmt.Sprintf("%d statuses of WaitAll", len(rs)), "%d", len(sts))
	return sts
}

// expectPending ends the rank if a request is complete.
func (t *T) expectPending(name string, r Request) {
	_, done := result2(r.Test())(t, "Test")
	t.check(!done, name+" not to be complete yet", "complete")
}

// signalTag is the tag of messages that only tell another rank to continue.
const signalTag = 31000

// signal tells each of the ranks to continue.
func (t *T) signal(ranks ...int) {
	for _, rank := range ranks {
		t.must("Send of a signal", t.Send([]byte{1}, rank, signalTag))
	}
}

// awaitSignal waits for a signal of each of the ranks.
func (t *T) awaitSignal(ranks ...int) {
	for _, rank := range ranks {
		var b [1]byte
		result(t.Recv(b[:], rank, signalTag))(t, "Recv of a signal")
	}
}

// dup duplicates the communicator (MPI_Comm_dup), and returns a T that uses the duplicate.
func (t *T) dup() *T {
	c := result(t.Dup())(t, "Dup")
	t.check(c != nil, "a communicator of Dup", "nil")
	return t.inComm(c)
}

func (t *T) barrier() { t.must("Barrier", t.Barrier()) }

// idle lets time pass in calls of the runtime and outside of them, so that the effect of a defect
// can appear. No result may depend on its duration.
func (t *T) idle() {
	const unusedTag = mpi.TagMax - 1
	for range 20 {
		result2(t.Iprobe(mpi.AnySource, unusedTag))(t, "Iprobe")
		t.w.Compute(20 * time.Microsecond)
	}
}

// waitLimit is how long waitUntil waits.
const waitLimit = 10 * time.Second

// waitUntil polls holds, and ends the rank if it does not return true within waitLimit. The
// violation names the condition.
func (t *T) waitUntil(condition string, holds func() bool) {
	pause := time.Microsecond
	for began := t.w.Wtime(); !holds(); t.w.Compute(pause) {
		t.check(t.w.Wtime()-began < waitLimit, condition+" in the end", "not within %v", waitLimit)
		pause = min(2*pause, time.Millisecond)
	}
}

// pollUntil repeats a call that tests for completion until it reports true, and returns its
// result. It ends the rank if the call fails, or does not report true in time.
func pollUntil[A any](t *T, condition string, call func() (A, bool, error)) (a A) {
	t.waitUntil(condition, func() (done bool) {
		a, done = result2(call())(t, "a test whether "+condition)
		return done
	})
	return a
}

// expectUsable checks that a communicator can be used: every rank sends to every rank. The first
// barrier keeps ranks that still probe for messages of the case from finding these messages.
func (t *T) expectUsable() {
	const tag = signalTag - 1 // no case uses it
	t.barrier()
	n := t.Size()
	for k := range n {
		to, from := (t.Rank()+k)%n, (t.Rank()+n-k)%n
		mine, theirs := data(t.Rank()*n+to, 40), data(from*n+t.Rank(), 40)
		r := t.irecv(len(theirs), from, tag)
		t.send(mine, to, tag)
		t.expectWait(r, theirs)
	}
	t.barrier()
}

// limitSizes are sizes around the limits of eager messages of runtimes, as a program may set them.
var limitSizes = []int{0, 1, 63, 64, 65, 4095, 4096, 4097, 39_999, 40_000, 40_001}

// sizesUpTo returns message sizes at which runtimes change protocols: small ones, those around
// powers of two and around 40 000, the eager limit of some tested setups, and large ones, up to a
// limit.
func sizesUpTo(limit int) []int {
	sizes := []int{0, 1, 7, 8, 9, 31, 63, 64, 65}
	for n := 128; n <= 1<<20; n *= 2 {
		sizes = append(sizes, n-1, n, n+1)
	}
	sizes = append(sizes, 39_999, 40_000, 40_001)
	return slices.DeleteFunc(sizes, func(n int) bool { return n > limit })
}

// maxSize is the largest size of sizesUpTo.
const maxSize = 1<<20 + 1

// someSizes are a few sizes, for cases that need small and large messages.
var someSizes = []int{0, 8, 1000, 5000, 70_000}

// largeSize is above the eager limit of every runtime.
const largeSize = 300_000

// expectMessage receives a message that Mprobe returned, and ends the rank unless it is want.
func (t *T) expectMessage(m Message, want []byte) Status {
	t.check(m != nil, "a message", "nil")
	r := newGuardedBuf(len(want))
	st := result(m.Recv(r.buf))(t, "Message.Recv")
	t.check(st.Count == len(want), fmt.Sprintf("a count of %d", len(want)), "%+v", st)
	t.expectBuffer("the message", r, want)
	return st
}
