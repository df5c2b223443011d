// Package portwatch reports changes of the interface below a stack on sockets: whether its
// link is up, and whether it still has the addresses of the stack. Sockets do not report
// either. Package device uses it.
//
// It listens to rtnetlink, which needs no privilege, and changes nothing. It watches only
// the interface that owns the given addresses.
//
// A Watch has a goroutine that calls the observer. Close stops it, and must not be called
// by the observer.
package portwatch
