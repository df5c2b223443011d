package mpi

import "github.com/fabrictest/fabrictest/mpi"

// procNullStatus is the status of a receive or probe from MPI_PROC_NULL.
var procNullStatus = Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}

var nullCases = []Case{{
	ID: "mpi/null/sends", Cite: rule("mpi/3.11/1"), Setup: ranks(1),
	Title:   "Sends of all modes to nobody are complete at once",
	Sends:   "every kind of send to ProcNull, synchronous ones too",
	Expects: "that all return and complete",
	Defects: []string{"NullBlocks", "NullRefused"}, Run: func(t *T) {
		d := data(1, largeSize)
		t.must("Send", t.Send(d, mpi.ProcNull, 1))
		t.must("Ssend", t.Ssend(d, mpi.ProcNull, 1))
		t.must("Rsend", t.Rsend(d, mpi.ProcNull, 1))
		t.wait(t.isend(d, mpi.ProcNull, 1))
		t.wait(t.issend(d, mpi.ProcNull, 1))
		t.expectUsable()
	},
}, {
	ID: "mpi/null/receive", Cite: rule("mpi/3.11/2"), Setup: ranks(1),
	Title:   "A receive from nobody is complete at once, and writes nothing",
	Sends:   "Recv and Irecv from ProcNull",
	Expects: "source ProcNull, any tag, count 0; the buffer as it was",
	Defects: []string{"NullBlocks", "NullIsAnySource", "NullWipes"}, Run: func(t *T) {
		r := newGuardedBuf(64)
		st := result(t.Recv(r.buf, mpi.ProcNull, 3))(t, "Recv")
		t.expectProcNull(st, r)
		p := t.irecv(64, mpi.ProcNull, mpi.AnyTag)
		t.expectProcNull(t.wait(p), p.recvBuf)
	},
}, {
	ID: "mpi/null/probe", Cite: rule("mpi/3.11/3"), Setup: ranks(1),
	Title:   "Probes of nobody succeed at once",
	Sends:   "Probe, Iprobe, Mprobe and Improbe from ProcNull, and receives of what they took out",
	Expects: "the status of nobody every time",
	Defects: []string{"NullBlocks"}, Run: func(t *T) {
		st := result(t.Probe(mpi.ProcNull, 1))(t, "Probe")
		t.check(st == procNullStatus, "the status of ProcNull of Probe", "%+v", st)
		st, found := result2(t.Iprobe(mpi.ProcNull, 1))(t, "Iprobe")
		t.check(found && st == procNullStatus, "Iprobe to find nobody", "%v %+v", found, st)
		m, st := result2(t.Mprobe(mpi.ProcNull, mpi.AnyTag))(t, "Mprobe")
		t.check(st == procNullStatus, "the status of ProcNull of Mprobe", "%+v", st)
		t.recvNoProc(m)
		m, st, found, err := t.Improbe(mpi.ProcNull, 1)
		t.must("Improbe", err)
		t.check(found && st == procNullStatus, "Improbe to find nobody", "%v %+v", found, st)
		t.recvNoProc(m)
	},
}, {
	ID: "mpi/null/ends-of-a-chain", Cite: rule("mpi/3.11/1", "mpi/3.11/2", "mpi/3.10/1"), Setup: ranks(4),
	Title:   "Sendrecv along a chain needs no exception at its ends",
	Sends:   "a shift by one with ProcNull beyond both ends",
	Expects: "the neighbour's data, and at the end a buffer as it was",
	Defects: []string{"NullWipes", "NullRefused", "NullIsAnySource"}, Run: func(t *T) {
		left, right := t.Rank()-1, t.Rank()+1
		if left < 0 {
			left = mpi.ProcNull
		}
		if right == t.Size() {
			right = mpi.ProcNull
		}
		for i, n := range someSizes {
			if left != mpi.ProcNull {
				t.expectSendrecv(data(10*i+t.Rank(), n), right, i, data(10*i+left, n), left, i)
				continue
			}
			r := newGuardedBuf(n)
			st := result(t.Sendrecv(data(10*i+t.Rank(), n), right, i, r.buf, left, i))(t, "Sendrecv")
			t.expectProcNull(st, r)
		}
	},
}, {
	ID: "mpi/null/persistent", Cite: rule("mpi/3.11/1", "mpi/3.9/1"), Setup: ranks(1),
	Title:   "Persistent requests with nobody can be started again and again",
	Sends:   "a persistent send and receive with ProcNull, three rounds",
	Expects: "that all complete, with the status of nobody",
	Defects: []string{"NullBlocks", "PersistentOnce"}, Run: func(t *T) {
		send := started(t.SsendInit(data(1, 16), mpi.ProcNull, 1))(t, "SsendInit")
		recv := t.recvInit(16, mpi.ProcNull, 1)
		for range 3 {
			t.must("StartAll", t.w.StartAll([]Request{send, recv.Request}))
			t.expectProcNull(t.waitAll(send, recv.Request)[1], recv.recvBuf)
		}
	},
}, {
	ID: "mpi/null/not-a-wildcard", Cite: rule("mpi/3.11/2"),
	Title:   "A receive from nobody takes no message of anybody",
	Sends:   "a message that is there, a receive from ProcNull of its tag, then one from its source",
	Expects: "the message in the second",
	Defects: []string{"NullBlocks", "NullIsAnySource"}, Run: byRank(func(t *T) { t.send(data(1, 32), 1, 2) }, func(t *T) {
		result(t.Probe(0, 2))(t, "Probe")
		r := newGuardedBuf(32)
		st := result(t.Recv(r.buf, mpi.ProcNull, 2))(t, "Recv")
		t.expectProcNull(st, r)
		t.expectRecv(data(1, 32), 0, 2)
	}),
}}

// recvNoProc receives the message of a matched probe of ProcNull (MPI_MESSAGE_NO_PROC), and
// checks that the buffer is unchanged.
func (t *T) recvNoProc(m Message) {
	t.check(m != nil, "MPI_MESSAGE_NO_PROC", "nil")
	r := newGuardedBuf(16)
	t.expectProcNull(result(m.Recv(r.buf))(t, "Message.Recv"), r)
}

// expectProcNull ends the rank unless st is the status of a receive from ProcNull and r unchanged.
func (t *T) expectProcNull(st Status, r *guardedBuf) {
	t.check(st == procNullStatus, "the status of ProcNull", "%+v", st)
	t.expectBuffer("the buffer", r, nil)
}
