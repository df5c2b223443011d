package rocewire

// Defects are the defects of a NIC in its packets. Tags say what each does, and which device has it
// or which requirement it violates.
type Defects struct {
	// Linux's soft-RoCE.
	DFUnchecked        bool `imitates:"pkt/ip/7, rxe" does:"packets with DF clear are accepted"`
	HugeLengthIsAccess bool `imitates:"rc/len/4, rxe 6.1" does:"a length beyond 2^31 is an access error"`
	MigReqZero         bool `imitates:"R9" does:"MigReq is always 0"`
	NoCongestion       bool `imitates:"R16" does:"CNPs are neither sent nor reacted to"`
	FetchAddLeaks      bool `imitates:"R34" does:"FETCH_ADD sends stale bytes in its unused field"`
	FlushICRCDoubled   bool `imitates:"R35" does:"FLUSH counts its headers twice in the ICRC"`
	ECNFromTClass      bool `imitates:"R44" does:"the ECN bits of connections come from the traffic class"`
	GSIAckReq          bool `imitates:"R45" does:"CM datagrams carry AckReq"`
	ReservedOpSilent   bool `imitates:"R47" does:"reserved opcodes are dropped without NAK"`
	RaggedAccepted     bool `imitates:"rxe" does:"a payload that is not a multiple of four bytes is accepted without pad"`
	FixedHopLimit      bool `imitates:"rxe" does:"the hop limit is always 64"`
	NoCreditReporting  bool `imitates:"rxe" does:"credits are never advertised"`
	NoCreditHeeding    bool `imitates:"rxe" does:"received credits are ignored"`
	MigrationIgnored   bool `imitates:"mig/1, rxe" does:"MigReq does not move a QP that is armed"`

	// Acknowledgements and reserved bits.
	NAKLate             bool `imitates:"rc/psn/5, E810" does:"a sequence NAK is sent 10 ms late"`
	AckPSNOff           bool `imitates:"rc/psn/5, rc/psn/11, rc/ack/2" does:"acknowledgements carry the PSN after the right one"`
	NAKWaitsForTimer    bool `imitates:"rc/tmo/8" does:"a sequence NAK takes effect only when the timer expires"`
	ReservedBitsChecked bool `imitates:"bth/resv/2" does:"reserved bits must be zero"`
}
