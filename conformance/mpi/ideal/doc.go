// Package ideal is an MPI to hold cases against: all ranks are in one process, nothing
// is fast, and everything that the standard leaves open is left to chance.
//
// [Run] runs a program on a number of ranks, one at a time, each until it waits. What
// goes on between them (a message that arrives, an operation on a window that takes
// effect) happens at some later moment that the seed decides. [Options] say what the
// runtime may take for itself: to buffer standard sends or not, to do nothing for a rank
// that does not call it. A program that is right on all of these asks for nothing that
// MPI does not promise.
//
// One [Defects] field at a time makes it break one rule, to prove that a case notices.
//
// It shares nothing with the runtime that it stands for but names and error classes. All
// of a world belongs to the goroutine that called Run.
package ideal
