// Package portwatch tells a stack on sockets what its kernel knows of the
// interface below: whether its link is up, and whether it still has the addresses
// that the stack uses. A socket itself says neither: what is sent on a cable that
// is out vanishes, and from an address that is gone some kernels go on sending.
//
// It listens to rtnetlink, which any user may in his own network namespace. It
// refuses to change anything, and to watch interfaces that own none of the
// addresses it was given.
//
// A Watch has a goroutine, which sleeps until the kernel has something to tell, and
// calls the observer from there. Close ends it, and may be called from anywhere but
// the observer.
package portwatch
