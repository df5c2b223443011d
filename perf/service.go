package perf

import "fmt"

// Service is the transport service of the queue pairs.
type Service uint8

const (
	// ServiceRC is the reliable connection of InfiniBand. Queue pairs are connected
	// by their attributes, have RNR, and a completion means arrival.
	ServiceRC Service = iota
	// ServiceIWARP is the connection of iWARP. The CM connects; a message without a
	// posted receive breaks the connection; and a completion means that the stream
	// has buffered the message.
	ServiceIWARP
	// ServiceUD is the unreliable datagram: messages may be lost, and without a
	// posted receive are. Only sends are possible.
	ServiceUD
)

func (s Service) String() string {
	switch s {
	case ServiceRC:
		return "reliable"
	case ServiceIWARP:
		return "streamed"
	case ServiceUD:
		return "datagrams"
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// needsCredits reports whether the receiver must send credits.
func (s Service) needsCredits() bool { return s != ServiceRC }
