// Package window is one-sided communication: windows of memory that other ranks
// read and change, and the epochs that say when they may.
//
// Puts and gets are transfers to and from the memory of the target, who takes no
// part. Accumulates are atomic element by element, with each other, whatever their
// kinds: either all of them are done by the NIC's own atomic operations on the
// aligned eight bytes in which an element is, or all of them by the target, who is
// sent a word for each. Which of the two, is settled for each target of a window
// when the window is made, so that the two never meet.
//
// An operation that is begun before the target is ready for it (its post, or its
// grant of a lock, has not come) waits here, in order, and the call that begins it
// does not wait. Closing an epoch waits for all of it.
//
// An Engine is one rank's. It is pure: calls, words and completions go in, words and
// transfers come out at the Fabric. It starts no goroutine, takes no lock, and never
// waits: whoever calls asks until what it waits for is so.
package window
