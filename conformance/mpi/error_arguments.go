package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
)

// sendCalls makes all calls that send without an attached buffer, and returns the error of each.
func sendCalls(t *T, dest, tag int) map[string]error {
	d := []byte{1, 2, 3}
	return map[string]error{
		"Send":      t.Send(d, dest, tag),
		"Ssend":     t.Ssend(d, dest, tag),
		"Rsend":     t.Rsend(d, dest, tag),
		"Isend":     errorOf(t.Isend(d, dest, tag)),
		"Issend":    errorOf(t.Issend(d, dest, tag)),
		"Irsend":    errorOf(t.Irsend(d, dest, tag)),
		"SendInit":  errorOf(t.SendInit(d, dest, tag)),
		"SsendInit": errorOf(t.SsendInit(d, dest, tag)),
		"RsendInit": errorOf(t.RsendInit(d, dest, tag)),
		"Sendrecv":  errorOf(t.Sendrecv(d, dest, tag, make([]byte, 3), t.Rank(), 1)),
	}
}

// recvCalls makes all calls that receive or probe, and returns the error of each.
func recvCalls(t *T, source, tag int) map[string]error {
	d := make([]byte, 3)
	_, _, iprobe := t.Iprobe(source, tag)
	_, _, mprobe := t.Mprobe(source, tag)
	_, _, _, improbe := t.Improbe(source, tag)
	return map[string]error{
		"Recv":     errorOf(t.Recv(d, source, tag)),
		"Irecv":    errorOf(t.Irecv(d, source, tag)),
		"RecvInit": errorOf(t.RecvInit(d, source, tag)),
		"Probe":    errorOf(t.Probe(source, tag)),
		"Iprobe":   iprobe,
		"Mprobe":   mprobe,
		"Improbe":  improbe,
		"Sendrecv": errorOf(t.Sendrecv(make([]byte, 3), t.Rank(), 1, d, source, tag)),
	}
}

// refused returns the body of a case. It makes the calls with each envelope (a rank and a tag): all
// must fail with an error of the class, and send nothing.
func refused(class error, calls func(t *T, rank, tag int) map[string]error, envelopes ...[2]int) func(*T) {
	return func(t *T) {
		for _, e := range envelopes {
			for call, err := range calls(t, e[0], e[1]) {
				t.mustFail(fmt.Sprintf("%s with the rank %d and the tag %d", call, e[0], e[1]), err, class)
			}
		}
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.expectUsable()
	}
}

var argumentCases = []Case{{
	ID: "mpi/error/send-to-no-rank", Cite: rule("mpi/8.4/1"),
	Title:   "Sends to what is no rank are errors, and send nothing",
	Sends:   "every kind of send to a rank beyond the last, to a negative one, and to anybody",
	Expects: "ErrRank of all; everything goes on",
	Defects: []string{"RanksUnchecked", "ErrorsWithoutClass", "ErrorWedges"}, Run: refused(mpi.ErrRank, sendCalls, [2]int{2, 1}, [2]int{1 << 20, 1}, [2]int{mpi.AnySource, 1}, [2]int{-17, 1}),
}, {
	ID: "mpi/error/receive-from-no-rank", Cite: rule("mpi/8.4/1"),
	Title:   "Receives and probes from what is no rank are errors",
	Sends:   "every kind of receive and probe from a rank beyond the last, and from a negative one",
	Expects: "ErrRank of all; everything goes on",
	Defects: []string{"RanksUnchecked", "ErrorsWithoutClass", "ErrorWedges"}, Run: refused(mpi.ErrRank, recvCalls, [2]int{2, 1}, [2]int{1 << 20, 1}, [2]int{-17, 1}),
}, {
	ID: "mpi/error/send-with-no-tag", Cite: rule("mpi/8.4/2"),
	Title:   "Sends with what is no tag are errors, and send nothing",
	Sends:   "every kind of send with a negative tag, any tag, and one above the largest",
	Expects: "ErrTag of all; everything goes on",
	Defects: []string{"TagsUnchecked", "ErrorsWithoutClass", "ErrorWedges"}, Run: refused(mpi.ErrTag, sendCalls, [2]int{0, -2}, [2]int{0, mpi.AnyTag}, [2]int{0, mpi.TagMax + 1}),
}, {
	ID: "mpi/error/receive-with-no-tag", Cite: rule("mpi/8.4/2"),
	Title:   "Receives and probes with what is no tag are errors",
	Sends:   "every kind of receive and probe with a negative tag and one above the largest",
	Expects: "ErrTag of all; everything goes on",
	Defects: []string{"TagsUnchecked", "ErrorsWithoutClass", "ErrorWedges"}, Run: refused(mpi.ErrTag, recvCalls, [2]int{0, -2}, [2]int{0, mpi.TagMax + 1}),
}, {
	ID: "mpi/error/largest-tag", Cite: rule("mpi/8.1.2/1"),
	Title:   "The tags from 0 to the largest are good, and told apart",
	Sends:   "messages with the tags 0, 1, 32767, 32768, 65536 and the largest two, received in another order",
	Expects: "each by its tag",
	Defects: []string{"TagMaxRefused", "TagCut"}, Run: func(t *T) {
		t.check(mpi.TagMax >= 32767, "32767 to be a tag at least", "%d", mpi.TagMax)
		tags := []int{0, 1, 32767, 32768, 65536, mpi.TagMax - 1, mpi.TagMax}
		if t.Rank() == 0 {
			t.waitAll(startAll(len(tags), func(i int) Request { return t.isend(data(i, 32), 1, tags[i]) })...)
		} else {
			for i := len(tags) - 1; i >= 0; i-- {
				t.expectStatus("the receive", t.expectRecv(data(i, 32), 0, tags[i]), 0, tags[i], 32)
			}
		}
	},
}, {
	ID: "mpi/error/collective-arguments", Cite: rule("mpi/8.4/3"),
	Title:   "Collective calls with arguments that do not fit are errors on every rank",
	Sends:   "a root that is no rank, types and operations that are none or do not fit, lengths that do not",
	Expects: "ErrRank, ErrType, ErrOp, ErrArg; everything goes on",
	Defects: []string{"RanksUnchecked", "ReductionsUnchecked", "ErrorWedges"}, Run: func(t *T) {
		b := make([]byte, 16)
		t.mustFail("Bcast from rank 2", t.Bcast(b, 2), mpi.ErrRank)
		t.mustFail("Bcast from rank -1", t.Bcast(b, -1), mpi.ErrRank)
		t.mustFail("Allreduce of a type that is none", t.Allreduce(mpi.InPlace, b, mpi.Type(99), mpi.Sum), mpi.ErrType)
		t.mustFail("Allreduce by an operation that is none", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Op(99)), mpi.ErrOp)
		t.mustFail("Allreduce by Replace", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Replace), mpi.ErrOp)
		t.mustFail("Allreduce by NoOp", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.NoOp), mpi.ErrOp)
		t.mustFail("Allreduce of the bits of floats", t.Allreduce(mpi.InPlace, b, mpi.Float64, mpi.BXor), mpi.ErrOp)
		t.mustFail("Allreduce of one and a half elements", t.Allreduce(mpi.InPlace, b[:12], mpi.Uint64, mpi.Sum), mpi.ErrArg)
		t.mustFail("Allgather without room", t.Allgather(b, make([]byte, 31)), mpi.ErrArg)
		t.mustFail("Alltoall with uneven parts", t.Alltoall(b[:15], b[:15]), mpi.ErrArg)
		t.mustFail("Alltoall with less room", t.Alltoall(b, make([]byte, 8)), mpi.ErrArg)
		t.expectUsable()
	},
}, {
	ID: "mpi/error/says-what", Cite: rule("mpi/8.3/3"),
	Title:   "An error names the call and the rank",
	Sends:   "a wrong Send and a wrong Irecv, here and in a communicator of another order",
	Expects: "*Error with the call and the rank in that communicator",
	Defects: []string{"ErrorsWithoutCall"}, Run: func(t *T) {
		back := t.split(0, -t.Rank())
		for _, c := range []*T{t, back} {
			_, irecv := c.Irecv(nil, 0, -9)
			for call, err := range map[string]error{"Send": c.Send(nil, 99, 1), "Irecv": irecv} {
				var e *mpi.Error
				t.check(errors.As(err, &e), "an *Error", "%v", err)
				t.check(e.Op == call && e.Rank == c.Rank(), fmt.Sprintf("%s of rank %d", call, c.Rank()), "%s of rank %d", e.Op, e.Rank)
			}
		}
	},
}, {
	ID: "mpi/error/during-traffic", Cite: rule("mpi/8.3/2"),
	Title:   "An erroneous call harms nothing that is under way",
	Sends:   "large exchanges under way, erroneous calls in between, then the waits",
	Expects: "the contents",
	Defects: []string{"ErrorWedges"}, Run: func(t *T) {
		p, r := t.irecv(largeSize, t.other(), 1), t.isend(data(t.Rank(), largeSize), t.other(), 1)
		q, s := t.irecv(64, t.other(), 2), t.isend(data(10+t.Rank(), 64), t.other(), 2)
		t.mustFail("Send", t.Send(nil, 99, 1), mpi.ErrRank)
		t.mustFail("Irecv", errorOf(t.Irecv(nil, 0, -5)), mpi.ErrTag)
		t.expectWait(p, data(t.other(), largeSize))
		t.expectWait(q, data(10+t.other(), 64))
		t.waitAll(r, s)
		t.expectUsable()
	},
}}
