// Package ideal is a reference implementation of MPI for the cases of conformance/mpi. All
// ranks are in one process, and chance decides everything that the standard leaves open.
//
// [Run] runs a program on a number of ranks, one at a time, each until it blocks. The seed decides
// when messages arrive and operations on windows are applied. [Options] choose what a runtime may
// do: buffer standard sends or not, and make no progress for a rank outside of calls. A program
// that is correct with all of them needs nothing beyond the standard.
//
// A field of [Defects] makes it break one rule, to prove that a case fails.
//
// The exported methods of comm, request, message, win and rank are the calls of MPI in the
// interfaces of package cases (conformance/mpi).
//
// It shares only names and error classes with package mpi. All state of a world belongs to
// the goroutine that called Run.
package ideal
