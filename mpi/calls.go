package mpi

import (
	"errors"
	"hash/crc32"
	"path"
	"runtime"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// callChecker passes the calls of a rank to the checker of Options.Misuse.
type callChecker struct {
	k        *rank
	r        *misuse.Rank
	wait     *misuse.Wait // of the current call
	buffered bool         // the next send is from the attached buffer

	ops         map[*p2p.Request]*misuse.Op
	sums        map[*misuse.Op]uint32 // of the buffers of nonblocking sends
	requests    map[*Request]*misuse.Request
	comms       map[*Comm]*misuse.Comm
	windows     map[*Win]*misuse.Window
	messages    map[*Message]*misuse.Op
	collective  *misuse.Op // the current blocking one; nil within those of the runtime
	collectives map[*execution]*misuse.Op
	trace       *callTrace // nil unless Options.OnCall is set
}

// newCallChecker returns the callChecker of a rank.
func newCallChecker(k *rank, c *misuse.Checker) *callChecker {
	t := &callChecker{
		k: k, r: c.Rank(k.env.Rank, k.env.Size), ops: map[*p2p.Request]*misuse.Op{}, sums: map[*misuse.Op]uint32{},
		requests: map[*Request]*misuse.Request{}, comms: map[*Comm]*misuse.Comm{}, windows: map[*Win]*misuse.Window{},
		messages: map[*Message]*misuse.Op{}, collectives: map[*execution]*misuse.Op{},
	}
	if k.opts.OnCall != nil {
		t.trace = &callTrace{onCall: k.opts.OnCall, recvs: map[*p2p.Request]*Transfer{}}
	}
	t.comm(k.world)
	return t
}

// modulePath is the prefix of this module's packages.
const modulePath = "github.com/fabrictest/fabrictest/"

// wrappers are prefixes of functions that call package mpi for a program: its calls are those of their
// callers.
var wrappers = []string{modulePath + "mpi/work.(*job).", modulePath + "internal/must."}

// sources is the directory of this package's files.
var sources = func() string {
	_, file, _, _ := runtime.Caller(0)
	return path.Dir(file)
}()

// place returns the call of the program that is executed, with its place in the source. A function belongs to
// this package by its file: the compiler names closures of inlined methods after their callers.
func (k *rank) place() explore.Place {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	p := explore.Place{Rank: k.env.Rank}
	for {
		f, more := frames.Next()
		isOwn := path.Dir(f.File) == sources && !strings.HasSuffix(f.File, "_test.go")
		switch name, isNamed := strings.CutPrefix(f.Function, modulePath+"mpi."); {
		case isOwn && isNamed:
			p.Call = callName(name)
		case !isOwn && !isWrapper(f.Function):
			p.File, p.Line = f.File, f.Line
			return p
		}
		if !more {
			return p
		}
	}
}

// place returns the call of the program that is executed.
func (t *callChecker) place() explore.Place { return t.k.place() }

// isWrapper reports whether a function calls package mpi for a program.
func isWrapper(function string) bool {
	for _, prefix := range wrappers {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// callName returns the name of a method as errors have it: "Send", "Win.Put".
func callName(function string) string {
	method, isMethod := strings.CutPrefix(function, "(*")
	if !isMethod {
		return function
	}
	receiver, name, _ := strings.Cut(method, ").")
	if receiver == "Comm" && name != "Free" || receiver == "World" {
		return name
	}
	return receiver + "." + name
}

// stopIfNeeded aborts the run if the checker has found an error after which ranks wait for ever.
func (t *callChecker) stopIfNeeded() {
	if f := t.k.opts.Misuse.Stop(); f != nil {
		t.k.abort(1, f.Kind)
	}
}

// comm returns a communicator as the checker sees it.
func (t *callChecker) comm(c *Comm) *misuse.Comm { return t.newComm(c, explore.Place{}) }

// newComm records a communicator that a call has created; without a line, it exists from the start.
func (t *callChecker) newComm(c *Comm, place explore.Place) *misuse.Comm {
	m := t.comms[c]
	if m == nil {
		m = t.r.NewComm(misuse.CommID{Context: c.context, First: c.worldRank(0)}, c.worldRanks, c.name, place)
		t.comms[c] = m
	}
	return m
}

// worldRanks returns the world ranks of the communicator, by rank.
func (c *Comm) worldRanks() []int {
	all := make([]int, c.size)
	for i := range all {
		all[i] = c.worldRank(i)
	}
	return all
}

// message returns the arguments of a send, a receive or a probe, whose peer is a world rank.
func (t *callChecker) message(c *Comm, buf []byte, peer, tag int) misuse.Message {
	return misuse.Message{Comm: t.comm(c), Peer: peer, Tag: tag, Bytes: len(buf), Place: t.place()}
}

// started records a send or a receive of the program, before it starts, and returns its mode.
func (t *callChecker) started(c *Comm, p *p2p.Request, isRecv bool) {
	if p.Context&collective != 0 {
		return
	}
	t.trace.started(c, p, isRecv)
	m := t.message(c, p.Buf, p.Peer, int(p.Tag))
	var o *misuse.Op
	m.Poll = func() (misuse.Result, bool) { return resultOf(p), p.Done() && t.ops[p] == o }
	if isRecv {
		o = t.r.Recv(m)
	} else {
		m.Mode = [...]misuse.Mode{misuse.Standard, misuse.Synchronous, misuse.Ready}[p.Mode]
		if t.buffered {
			m.Mode = misuse.Buffered
		} else if m.Mode == misuse.Standard && t.k.opts.Misuse.Options().Synchronous {
			p.Mode, p.Blocking = p2p.Synchronous, false
		}
		o = t.r.Send(m)
		if !t.k.opts.Misuse.Options().OnlyWaits {
			t.sums[o] = crc32.ChecksumIEEE(p.Buf)
		}
	}
	t.ops[p] = o
}

// resultOf returns the result of a complete send or receive.
func resultOf(p *p2p.Request) misuse.Result {
	failed := p.Err != nil && !errors.Is(p.Err, p2p.ErrTruncated)
	return misuse.Result{Source: p.Source, Tag: int(p.MatchedTag), Size: p.Size, Cancelled: p.Cancelled, Failed: failed}
}

// completed records the completion of a send or a receive.
func (t *callChecker) completed(p *p2p.Request) {
	t.trace.completed(p, t.k.env.Proc.Now())
	o := t.ops[p]
	if o == nil {
		return
	}
	delete(t.ops, p)
	if sum, isSend := t.sums[o]; isSend {
		delete(t.sums, o)
		if p.Err == nil && crc32.ChecksumIEEE(p.Buf) != sum {
			t.r.BufferChanged(o, t.place())
		}
	}
	t.r.Complete(o, resultOf(p))
}

// waitsFor records what the current call waits for.
func (t *callChecker) waitsFor(ops ...*misuse.Op) {
	t.wait = &misuse.Wait{Place: t.place(), Ops: ops}
}

// waitsForP2P records that the current call waits for requests, which may be nil.
func (t *callChecker) waitsForP2P(all ...*p2p.Request) {
	var ops []*misuse.Op
	for _, p := range all {
		if o := t.ops[p]; o != nil {
			ops = append(ops, o)
		}
	}
	t.waitsFor(ops...)
}

// waitFor returns a wait for requests. One that completes by itself is not part of a wait for all, and
// makes one for any end.
func (t *callChecker) waitFor(rs []*Request, anyOf bool) *misuse.Wait {
	w := &misuse.Wait{Place: t.place(), Any: anyOf}
	for _, r := range rs {
		if !r.Active() {
			continue
		}
		o := t.ops[r.p2p]
		if r.kind == collectiveRequest {
			o = t.collectives[r.execution]
		}
		if o == nil && anyOf {
			return &misuse.Wait{Place: w.Place}
		}
		if o != nil {
			w.Ops = append(w.Ops, o)
		}
	}
	return w
}

// waitsForRequests records that the current call waits for all requests, or any.
func (t *callChecker) waitsForRequests(anyOf bool, rs ...*Request) { t.wait = t.waitFor(rs, anyOf) }

// polled records an unsuccessful test. The caller does not hold the lock.
func (t *callChecker) polled(anyOf bool, rs ...*Request) {
	t.polledFor(t.waitFor(rs, anyOf))
}

// polledFor records an unsuccessful test of what w waits for.
func (t *callChecker) polledFor(w *misuse.Wait) {
	if !t.r.Polled(w) {
		t.stopIfNeeded()
	}
}

// sleep records that the rank waits for an event. The caller does not hold the lock.
func (t *callChecker) sleep() {
	if t.wait != nil && !t.r.Sleep(t.wait, t.k.env.Proc.Now()) {
		t.stopIfNeeded()
	}
}

// leave records the end of a call.
func (t *callChecker) leave() {
	t.wait = nil
	t.r.Wake()
	t.trace.exit(t.k.env.Proc.Now())
}

// probe returns a probe to wait for.
func (t *callChecker) probe(c *Comm, e p2p.Envelope) *misuse.Op {
	return t.r.Probe(t.message(c, nil, int(e.Source), int(e.Tag)))
}

// newRequest records a request.
func (t *callChecker) newRequest(r *Request, persistent bool) {
	t.requests[r] = t.r.NewRequest(persistent, t.ops[r.p2p], t.place())
}

// requestStarted records the start of a persistent request.
func (t *callChecker) requestStarted(r *Request) {
	t.requests[r].Started(t.ops[r.p2p], t.place())
}

// requestFinished records that a request is complete for the program.
func (t *callChecker) requestFinished(r *Request) {
	t.requests[r].Finished()
	if !r.isPersistent() {
		delete(t.requests, r)
	}
	if o := t.collectives[r.execution]; r.kind == collectiveRequest && o != nil {
		t.collectiveDone(r.execution)
	}
}

// requestFreed records a Free.
func (t *callChecker) requestFreed(r *Request) {
	if q := t.requests[r]; q != nil {
		q.Freed(t.place())
		delete(t.requests, r)
	}
}

// matched records the message that Mprobe returns.
func (t *callChecker) matched(c *Comm, m *Message, from, tag int) {
	t.messages[m] = t.r.Matched(t.message(c, nil, from, tag), from, tag)
}

// received records that the message of Mprobe is received.
func (t *callChecker) received(m *Message, buf []byte) {
	t.trace.received(m, t.k.env.Proc.Now())
	if o := t.messages[m]; o != nil {
		t.r.Received(o, len(buf), t.place())
		delete(t.messages, m)
	}
}

// beginCollective records a blocking collective of the program, until the caller calls end. The caller
// does not hold the lock.
func (c *Comm) beginCollective(call misuse.Call) (end func()) {
	t := c.rank.calls
	if t == nil {
		return func() {}
	}
	t.trace.collective(c, &call)
	o := t.comm(c).Collective(call, t.place())
	t.stopIfNeeded()
	t.collective = o
	return func() {
		t.collective = nil
		o.Done()
	}
}

// enterCollective makes the rank wait for a collective of the program, of which the runtime executes a
// part. With Synchronous all ranks must have called it.
func (t *callChecker) enterCollective() {
	if t.collective == nil {
		return
	}
	t.waitsFor(t.collective)
	if t.k.opts.Misuse.Options().Synchronous {
		t.k.waitUntil(t.collective.AllArrived)
	}
}

// collectiveStarted records the start of a nonblocking or persistent collective.
func (t *callChecker) collectiveStarted(call string, x *execution) {
	checked := checkedCall(call, &x.collectiveCall)
	t.trace.collective(x.c, &checked)
	t.collectives[x] = t.comm(x.c).Collective(checked, t.place())
	t.stopIfNeeded()
}

// collectiveDone records the completion of a nonblocking collective.
func (t *callChecker) collectiveDone(x *execution) {
	t.collectives[x].Done()
	delete(t.collectives, x)
}

// checkedCall returns the arguments of a collective that must agree on all ranks.
func checkedCall(name string, a *collectiveCall) misuse.Call {
	call := misuse.Call{Name: name, Root: -1, Bytes: a.Bytes}
	hasRoot := a.Op == coll.Bcast || a.Op == coll.Scatter || a.Op == coll.Gather || a.Op == coll.Reduce
	if hasRoot {
		call.Root, call.FromRoot = a.Root, a.Op == coll.Bcast || a.Op == coll.Scatter
	}
	if a.Element > 0 { // a reduction
		call.Type, call.Op = a.t.String(), a.op.String()
	}
	if a.In == nil && a.Out == nil {
		return call
	}
	call.Bytes, call.Own = -1, a.Bytes
	switch a.Op {
	case coll.Allgather:
		call.Counts = a.Out.Counts
	case coll.ReduceScatter:
		call.Counts = a.In.Counts
	case coll.Scatter:
		call.Send = a.In.Counts
	case coll.Gather:
		call.Recv = a.Out.Counts
	case coll.Alltoall:
		call.Send, call.Recv = a.In.Counts, a.Out.Counts
	}
	return call
}

// newWindow records a window.
func (t *callChecker) newWindow(w *Win) {
	t.windows[w] = t.r.NewWindow(t.comm(w.c), t.place())
}

// accessed records an operation on a window, unless it failed.
func (t *callChecker) accessed(w *Win, target int, err error) {
	if err == nil {
		t.windows[w].Access(target, t.place())
	}
}

// epochOpened records a Post or a Start.
func (t *callChecker) epochOpened(w *Win, call string, group []int, a Assert) {
	t.trace.note("ranks %v", group)
	if call == "Post" {
		t.windows[w].Post(group, t.place())
		return
	}
	t.windows[w].Start(group, a&NoCheck != 0, t.place())
}

// fenced records a fence that has succeeded.
func (t *callChecker) fenced(w *Win, a Assert) {
	t.windows[w].Fence(a&NoPrecede != 0, a&NoSucceed != 0, t.place())
}

// waitsForLocks records that the current call waits for operations in an epoch of locks.
func (t *callChecker) waitsForLocks(w *Win) {
	t.waitsFor(t.windows[w].AwaitLocks()...)
}

// lock records a lock that is requested.
func (t *callChecker) lock(w *Win, kind LockKind, target int, a Assert) {
	t.trace.note("%s, rank %d", [...]string{window.Shared: "shared", window.Exclusive: "exclusive"}[kind], target)
	t.waitsFor(t.windows[w].Lock(target, kind == window.Exclusive, a&NoCheck != 0, t.place()))
}

// raised reports the error of a call, if the program has caused it.
func (t *callChecker) raised(err error) {
	t.traceError(err)
	for _, x := range []struct {
		class error
		kind  string
	}{
		{ErrRMASync, misuse.EpochMisuse},
		{ErrRequest, misuse.RequestUse},
		{ErrRank, misuse.Argument},
		{ErrTag, misuse.Argument},
		{ErrComm, misuse.Argument},
		{ErrBuffer, misuse.Argument},
		{ErrArg, misuse.Argument},
		{ErrOp, misuse.Argument},
		{ErrType, misuse.Argument},
		{ErrWin, misuse.Argument},
		{ErrRMARange, misuse.Argument},
		{ErrRMAConflict, misuse.Argument},
	} {
		if errors.Is(err, x.class) {
			t.r.Error(x.kind, err, t.place())
			return
		}
	}
}

// end records that the program of the rank has returned.
func (t *callChecker) end(err error) {
	t.r.End(err != nil)
	t.stopIfNeeded()
}
