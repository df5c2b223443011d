// Package mpi contains the conformance cases of the multi-rank runtime, by the rules of the
// MPI standard. A [Case] has a program that every rank runs: it sends, receives, synchronizes
// and shares memory through the API alone, and checks every received byte, the results of
// calls, and their order.
//
// Cases use the runtime through interfaces ([World], [Comm], [Request], [Win]). [On] adapts
// the runtime of package mpi to them. Package ideal implements them with a reference runtime
// in one process. It does at random what the standard allows (buffers every message or none,
// delivers late, grants locks late), so that a case which passes on it requires nothing that
// MPI does not promise. It can also have one defect at a time, which shows that every case
// fails on a runtime that breaks its rule ([Case].Defects).
//
// To show that a call must still block, a case checks it while the rank that it waits for
// provably has not moved. No case sleeps.
//
// # Adding a case
//
// Find or add the row of the rule in ledger.yaml, paraphrased. Write the case into the file
// of its topic with the helpers of [T]. Name a defect of package ideal that breaks the rule,
// or add one. Then run
//
//	go test ./conformance/judge -run Ledger -update
//	go test ./conformance/mpi -run 'Legal|Defects' -seeds 20
//	go test ./conformance/mpi -run TestRuntime -ginkgo.focus mpi/topic/behaviour -often 20
//
// The second command shows whether the case requires more than MPI promises and whether it
// can fail, the third whether the runtime follows the rule.
//
// One goroutine runs each rank of a case. Cases share no state.
package mpi
