package engine

// Counters are the counters of a NIC. Every received datagram is counted in
// Received and, if it was dropped, in one Drop counter.
type Counters struct {
	Sent, Received             uint64
	SentBytes, ReceivedBytes   uint64
	Sends, Recvs               uint64 // work requests completed
	Messages                   uint64 // send work requests completed with success
	AcksSent, AcksReceived     uint64
	CNPsSent, CNPsHandled      uint64
	CNPsLost                   uint64 // not sent because the queue was full
	ECNMarked                  uint64
	MADsSent, MADsReceived     uint64
	Duplicates, OutOfSequence  uint64
	SeqNAKsSent, SeqNAKsRecvd  uint64
	RNRNAKsSent, RNRNAKsRecvd  uint64
	FatalNAKsSent, FatalNAKs   uint64
	Retransmits                uint64 // request packets retransmitted
	ImpliedNAKs                uint64
	Timeouts                   uint64
	RetryExceeded, RNRExceeded uint64
	StaleResponses             uint64 // responses with a PSN that was already acknowledged
	GhostResponses             uint64 // responses with a PSN that was never sent
	BadResponses               uint64

	DropShort, DropICRC, DropOpcode, DropVersion, DropPad uint64
	DropAddress, DropQPN, DropQPType, DropQPState         uint64
	DropPKey, DropQKey, DropSequence, DropLength          uint64
	DropNoReceive, DropTooLong, DropAccess, DropReplay    uint64
	DropQueue, DropDead                                   uint64

	BlindICRC uint64 // packets whose ICRC was checked without knowing the IP identification
}

// Dropped returns the number of received packets that were dropped.
func (c *Counters) Dropped() uint64 {
	return c.DropShort + c.DropICRC + c.DropOpcode + c.DropVersion + c.DropPad +
		c.DropAddress + c.DropQPN + c.DropQPType + c.DropQPState +
		c.DropPKey + c.DropQKey + c.DropSequence + c.DropLength +
		c.DropNoReceive + c.DropTooLong + c.DropAccess + c.DropReplay + c.DropQueue + c.DropDead
}
