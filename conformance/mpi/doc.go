// Package mpi judges the multi-rank runtime by the rules of the MPI standard. A [Case]
// is a program that every rank runs: it sends, receives, synchronizes and shares memory
// through the API alone, and looks at what arrives, byte by byte, at what calls return,
// and at what has or has not happened before them.
//
// The judge knows nothing of how the runtime works. Cases see it through small
// interfaces ([World], [Comm], [Request], [Win]), which [On] puts around the runtime of
// package mpi, and which the package ideal, beside this one, implements for itself: an
// ideal MPI of a few hundred lines, in one process. It has two uses. It does, at random,
// all that the standard allows (buffers every message or none, delivers late, lets locks
// be granted late), so that a case which passes on it asks for nothing that MPI does not
// promise. And it can be given one defect at a time, so that every case is shown to fail
// on a runtime that breaks its rule ([Case].Defects).
//
// "Nothing happens yet" is shown by a conversation: a rank that must still be waiting is
// looked at while the one that it waits for provably has not moved. No case sleeps and
// hopes.
//
// # Adding a case
//
// Find or add the rule's row in ledger.yaml, in words of one's own. Write the case into
// the file of its topic, with the words of [T]; name a defect of package ideal that breaks
// the rule, or add one. Then
//
//	go test ./conformance/mpi -run Ledger -update
//	go test ./conformance/mpi -run 'Legal|Defects' -seeds 20
//	go test ./conformance/mpi -run TestRuntime -ginkgo.focus mpi/topic/behaviour -often 20
//
// say whether it asks for more than MPI promises, whether it can fail, and whether the
// runtime keeps the rule.
//
// A case is run by one goroutine a rank. Cases share nothing.
package mpi
