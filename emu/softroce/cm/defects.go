package cm

import "net/netip"

// Defects make an Agent behave like a defective device. The zero value is a sound
// one. Each field names a fault that a conformance case must be able to see.
type Defects struct {
	// IgnoreREQ never answers a REQ for a service that is listened on.
	IgnoreREQ bool
	// StopAfterConns, if not 0, ignores every REQ after that many connections.
	StopAfterConns uint64
	// LeakTimeWait never frees a connection that reached the end of time wait,
	// so that MaxConns runs out.
	LeakTimeWait bool
	// IgnoreUnknownService is silent where a REJ with reason 8 is due, or a
	// SIDR_REP with status 1.
	IgnoreUnknownService bool
	// RejectWithoutCommID leaves the remote communication ID of a refused REQ
	// out of the REJ, so that the requester cannot tell what was refused.
	RejectWithoutCommID bool
	// NoRetransmitREP sends a REP once and then only waits.
	NoRetransmitREP bool
	// DuplicateREQSecondConn takes a repeated REQ for a new connection.
	DuplicateREQSecondConn bool
	// RejectZeroLID refuses paths whose LIDs are 0, with reasons 13 and 19,
	// although LIDs mean nothing on RoCEv2.
	RejectZeroLID bool
	// NoDREPWhenDisconnected answers a DREQ only while connected.
	NoDREPWhenDisconnected bool
	// IgnoreCommEst waits for an RTU even when data has arrived.
	IgnoreCommEst bool
	// AcceptAnyPrivateVersion does not check rdma_cm's header.
	AcceptAnyPrivateVersion bool
	// NoMRA never sends an MRA by itself.
	NoMRA bool
	// SIDRZeroQKey answers a SIDR_REQ without its Q_Key.
	SIDRZeroQKey bool
	// DetourLocal and DetourRemote, if valid, replace the addresses of every MAD
	// about an IPv6 connection: a device that does its management over IPv4.
	DetourLocal, DetourRemote netip.Addr
	// OverIPv4 manages IPv6 connections over IPv4: between the addresses of the
	// detour or, where there is none, with nobody.
	OverIPv4 bool
}
