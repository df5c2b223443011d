package perf

import "fmt"

// Service is what two queue pairs are to each other, as far as a program has to
// mind.
type Service uint8

const (
	// Reliable is InfiniBand's reliable connection. Queue pairs are joined by
	// their attributes; who has no receive posted is waited for; and what has
	// completed has arrived.
	Reliable Service = iota
	// Streamed is iWARP's connection. The CM makes it; a message that finds no
	// receive breaks it; and a send or WRITE completes when the stream has taken
	// it, wherever it is by then.
	Streamed
	// Datagrams are unreliable ones: nothing joins two queue pairs, and messages
	// are lost, among others those that find no receive. There are sends only.
	Datagrams
)

func (s Service) String() string {
	switch s {
	case Reliable:
		return "reliable"
	case Streamed:
		return "streamed"
	case Datagrams:
		return "datagrams"
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// credits reports whether a sender must be told how many receives are posted.
func (s Service) credits() bool { return s != Reliable }
