package mpihost_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Offsets in the memory of a litmus program. Data and flag are in cache lines of their own.
const (
	dataAt, flagAt, resultAt, memoryBytes = 0, 4 << 10, 5 << 10, 6 << 10
	longBytes                             = 3 << 10 // several packets
)

// litmusEnd is one of two connected RC QPs with registered memory.
type litmusEnd struct {
	e      *transport.Env
	qp     verbs.QP
	cq     verbs.CQ
	mr     verbs.MR
	memory []byte
	peer   litmusAddress
}

type litmusAddress struct {
	GID  verbs.GID
	QPN  verbs.QPN
	Addr uint64
	RKey verbs.RKey
}

const litmusTimeout = 10 * time.Second

// newLitmusEnd opens the end of a rank.
func newLitmusEnd(e *transport.Env) (*litmusEnd, error) {
	dev := e.NICs[0].Device
	l := &litmusEnd{e: e, memory: make([]byte, memoryBytes)}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	const remote = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	if l.mr, err = pd.RegMR(verbs.MRInit{Buf: l.memory, Access: verbs.AccessLocalWrite | remote}); err != nil {
		return nil, err
	}
	if l.cq, err = dev.CreateCQ(verbs.CQInit{Depth: 16}); err != nil {
		return nil, err
	}
	caps := verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}
	if l.qp, err = dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: pd, SendCQ: l.cq, RecvCQ: l.cq, Caps: caps}); err != nil {
		return nil, err
	}
	return l, l.connect(remote)
}

// connect exchanges the addresses, and connects the QP.
func (l *litmusEnd) connect(access verbs.Access) error {
	const port = 1
	gid, err := l.e.NICs[0].Device.QueryGID(port, 0)
	if err != nil {
		return err
	}
	text, err := json.Marshal(litmusAddress{gid.GID, l.qp.QPN(), l.mr.Addr(), l.mr.RKey()})
	if err == nil {
		err = l.e.Control.Send(1-l.e.Rank, text)
	}
	if err == nil {
		text, err = l.e.Control.Recv(1-l.e.Rank, litmusTimeout)
	}
	if err == nil {
		err = json.Unmarshal(text, &l.peer)
	}
	if err != nil {
		return err
	}
	err = traffic.Connect(l.qp, verbs.QPAttr{
		Port: port, Access: access, AH: traffic.Address(port, 0, l.peer.GID), PathMTU: verbs.MTU1024, DestQPN: l.peer.QPN,
		MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12, Timeout: 8, RetryCnt: 7, RNRRetry: 7,
	})
	if err != nil {
		return err
	}
	for range 2 { // receives for the completions of WRITE_IMM and SEND
		if _, err := l.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
			return err
		}
	}
	return l.e.Control.Barrier(litmusTimeout)
}

// post posts a work request on bytes of the memory, to the same offset of the peer.
func (l *litmusEnd) post(op verbs.WROpcode, at, n int) error {
	wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, Remote: verbs.Remote{Addr: l.peer.Addr + uint64(at), RKey: l.peer.RKey}}
	if n > 0 {
		wr.SGL = []verbs.SGE{verbs.SGEOf(l.mr, at, n)}
	}
	switch op {
	case verbs.OpAtomicFetchAdd:
		wr.SGL, wr.Atomic.CompareAdd = []verbs.SGE{verbs.SGEOf(l.mr, resultAt, 8)}, 1
	case verbs.OpRDMARead:
		wr.SGL = []verbs.SGE{verbs.SGEOf(l.mr, resultAt, n)}
	}
	_, err := l.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// completions waits for a number of successful completions.
func (l *litmusEnd) completions(n int) error {
	var wc [1]verbs.WC
	return l.poll(func() (bool, error) {
		got, err := l.cq.Poll(wc[:])
		if err == nil && got == 1 && wc[0].Status != verbs.WCSuccess {
			err = fmt.Errorf("a completion with %v", wc[0].Status)
		}
		n -= got
		return n == 0, err
	})
}

// flagged waits for a byte to be set in memory.
func (l *litmusEnd) flagged(at int) error {
	return l.poll(func() (bool, error) { return l.memory[at] != 0, nil })
}

// poll calls done until it returns true or an error, for a limited time.
func (l *litmusEnd) poll(done func() (bool, error)) error {
	wait := 200 * time.Nanosecond
	for i := range 2000 {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if i == 1000 { // packets are retransmitted
			wait = time.Millisecond
		}
		l.e.Proc.Compute(wait)
	}
	return errors.New("what the rank polls for does not come")
}

// Errors of readers.
var (
	errStale    = errors.New("the notice has arrived before the data")
	errReplaced = errors.New("the first write has replaced the second")
)

// hasData checks that n bytes of data have arrived.
func (l *litmusEnd) hasData(at, n int) error {
	if bytes.IndexByte(l.memory[at:at+n], 0) >= 0 {
		return errStale
	}
	return nil
}

// litmusProgram is a program of a writer and a reader.
type litmusProgram struct {
	name           string
	writer, reader func(l *litmusEnd) error
	// breaks is the strongest placement under which the program is not robust, with err; 0 if it is robust.
	breaks  sim.Placement
	err     error
	reorder time.Duration // 0: the default
}

// run runs the end of a rank, and keeps it open until both are done.
func (p *litmusProgram) run(e *transport.Env) error {
	l, err := newLitmusEnd(e)
	if err != nil {
		return err
	}
	if e.Rank == 0 {
		for i := range l.memory {
			l.memory[i] = 1
		}
		err = p.writer(l)
	} else {
		err = p.reader(l)
	}
	return errors.Join(err, e.Control.Barrier(litmusTimeout))
}

// steps posts work requests, and then waits for their completions.
func steps(posts ...func(l *litmusEnd) error) func(l *litmusEnd) error {
	return func(l *litmusEnd) error {
		for _, post := range posts {
			if err := post(l); err != nil {
				return err
			}
		}
		return l.completions(len(posts))
	}
}

func post(op verbs.WROpcode, at, n int) func(l *litmusEnd) error {
	return func(l *litmusEnd) error { return l.post(op, at, n) }
}

// readAfter waits for a notice, and then reads the data.
func readAfter(notice func(l *litmusEnd) error, n int) func(l *litmusEnd) error {
	return func(l *litmusEnd) error {
		if err := notice(l); err != nil {
			return err
		}
		return l.hasData(dataAt, n)
	}
}

// tell sends a message out of band after the writer's steps, as over another transport.
func tell(writer func(l *litmusEnd) error) func(l *litmusEnd) error {
	return func(l *litmusEnd) error {
		if err := writer(l); err != nil {
			return err
		}
		return l.e.Control.Send(1, nil)
	}
}

func told(l *litmusEnd) error {
	_, err := l.e.Control.Recv(0, litmusTimeout)
	return err
}

func flag(l *litmusEnd) error     { return l.flagged(flagAt) }
func complete(l *litmusEnd) error { return l.completions(1) }

// litmusPrograms are classic programs of a producer and a consumer, and errors of the field with their remedies.
var litmusPrograms = []litmusProgram{
	{
		name:   "data, then a flag that is polled (DeepEP #20, #40)",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, 8), post(verbs.OpRDMAWrite, flagAt, 8)),
		reader: readAfter(flag, 8), breaks: sim.Relaxed, err: errStale,
	},
	{
		name:   "data, then a flag by an atomic (NCCL #2210, DeepEP #661)",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, 8), post(verbs.OpAtomicFetchAdd, flagAt, 8)),
		reader: readAfter(flag, 8), breaks: sim.Weakest, err: errStale,
	},
	{
		name:   "data and a tag at its end in one packet (DeepEP #437)",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, 512)),
		reader: readAfter(func(l *litmusEnd) error { return l.flagged(dataAt + 511) }, 512), breaks: sim.Weakest, err: errStale,
	},
	{
		name:   "the last byte of a long write is polled (libfabric #655)",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, longBytes)),
		reader: readAfter(func(l *litmusEnd) error { return l.flagged(dataAt + longBytes - 1) }, longBytes), breaks: sim.Relaxed, err: errStale,
	},
	{
		name:   "data, then an empty WRITE_IMM (NCCL #850)",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, longBytes), post(verbs.OpRDMAWriteImm, dataAt, 0)),
		reader: readAfter(complete, longBytes),
	},
	{
		name:   "data, then a SEND",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, longBytes), post(verbs.OpSend, 0, 0)),
		reader: readAfter(complete, longBytes),
	},
	{
		name:   "the peer is told of the writer's completion (UCX #4932, #9632)",
		writer: tell(steps(post(verbs.OpRDMAWrite, dataAt, longBytes))),
		reader: readAfter(told, longBytes), breaks: sim.Relaxed, err: errStale, reorder: 20 * time.Microsecond,
	},
	{
		name:   "the peer is told of the completion of a READ after the write",
		writer: tell(steps(post(verbs.OpRDMAWrite, dataAt, longBytes), post(verbs.OpRDMARead, dataAt, 8))),
		reader: readAfter(told, longBytes), reorder: 20 * time.Microsecond,
	},
	{
		name: "two writes of the same memory, then a SEND",
		writer: steps(post(verbs.OpRDMAWrite, dataAt, 8), func(l *litmusEnd) error {
			binary.NativeEndian.PutUint64(l.memory[dataAt+64:], 2)
			wr := verbs.SendWR{
				Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(l.mr, dataAt+64, 8)},
				Remote: verbs.Remote{Addr: l.peer.Addr + dataAt, RKey: l.peer.RKey},
			}
			_, err := l.qp.PostSend([]verbs.SendWR{wr})
			return err
		}, post(verbs.OpSend, 0, 0)),
		reader: func(l *litmusEnd) error {
			err := complete(l)
			if got := binary.NativeEndian.Uint64(l.memory[dataAt:]); err == nil && got != 2 {
				err = errReplaced
			}
			return err
		}, breaks: sim.Relaxed, err: errReplaced,
	},
}

// litmusRuns is enough for each of the programs: the error of the slowest is found in run 18.
const litmusRuns = 30

func TestVerbsLitmusPrograms(t *testing.T) {
	for _, p := range litmusPrograms {
		if p.breaks == sim.Weakest {
			checkLitmus(t, &p, sim.Relaxed)
		}
		checkLitmus(t, &p, cmp.Or(p.breaks, sim.Weakest))
	}
}

// checkLitmus compares the runs of a program under a placement with those under the strong model.
func checkLitmus(t *testing.T, p *litmusProgram, placement sim.Placement) {
	t.Helper()
	began := time.Now()
	x := &mpihost.Exploration{
		Fabric:  mpihost.Fabric{Ranks: 2, Seed: 1, Placement: placement, Reorder: p.reorder},
		Explore: explore.Options{Seed: 1, MaxRuns: litmusRuns}, ShrinkRuns: 200,
	}
	x.Fabric.Link.Spray = 4
	r, report, err := x.RobustVerbs(t.Context(), p.run)
	must.Do(t, err)
	want := mpihost.Robust
	if p.breaks != sim.Strict && placement >= p.breaks {
		want = mpihost.NotRobust
	}
	if r.Verdict != want {
		t.Errorf("%s, placement %v: %s, want %s: %+v, %+v", p.name, placement, r.Verdict, want, r, report.Failure)
	}
	if f := report.Failure; f != nil {
		t.Logf("%s, placement %v: run %d, %v: %v\n%s", p.name, placement, report.Runs, time.Since(began).Round(time.Millisecond), f.Err, f.Path.Changes())
		if !strings.Contains(f.Err.Error(), p.err.Error()) {
			t.Errorf("%s: %v", p.name, f.Err)
		}
	}
}
