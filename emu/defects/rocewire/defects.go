package rocewire

// Defects are the defects of a NIC that can be told from its packets. Tags say
// what each does, and whose defect it is or which requirement it breaks.
type Defects struct {
	// IP, UDP and the ICRC.
	IPv6Dead            bool `imitates:"pkt/ip/1" does:"packets over IPv6 are neither sent nor accepted"`
	AnswersNoDSCP       bool `imitates:"pkt/ip/3" does:"responses are sent with traffic class 0"`
	TrailingBytes       bool `imitates:"pkt/ip/5, pkt/ip/10" does:"four zero bytes follow the ICRC of every packet"`
	PlainSocket         bool `imitates:"pkt/ip/6, pkt/udp/3" does:"packets are sent as by an ordinary socket: DF clear, with a UDP checksum"`
	UDPChecksumRequired bool `imitates:"pkt/udp/4" does:"packets without UDP checksum are dropped"`
	DFUnchecked         bool `imitates:"pkt/ip/7, rxe" does:"packets with DF clear are accepted"`
	IPUnchecked         bool `imitates:"pkt/udp/1, pkt/addr/3, pkt/addr/4" does:"packets to any UDP port, to any address of the device and of any GID type are accepted"`
	PrimaryAddressUsed  bool `imitates:"pkt/ip/9" does:"every packet is sent from the first address"`
	QPNLoose            bool `imitates:"pkt/addr/5, bth/qpn/1, bth/qpn/2, ecn/5" does:"a packet for a QP that does not exist goes to another QP"`
	SourcePortPerPacket bool `imitates:"pkt/udp/2" does:"every packet has another UDP source port"`
	FrameEndICRC        bool `imitates:"pkt/udp/5" does:"the ICRC is read from the end of the frame"`
	ICRCCheckUnmasked   bool `imitates:"icrc/3, icrc/4, pkt/udp/4" does:"packets whose fields outside of the ICRC changed in transit are dropped"`
	ICRCUnchecked       bool `imitates:"icrc/5, icrc/6, icrc/7" does:"the ICRC check skips the IP identification, byte 8 of the BTH and the pad, and accepts either byte order"`

	// The BTH.
	ResponseTVerUnchecked bool `imitates:"bth/tver/1" does:"the TVer of responses is not checked"`
	BTHUnchecked          bool `imitates:"bth/tver/1, bth/op/1, irdma" does:"neither the TVer nor the transport service of a packet is checked"`
	MissingHeadersZero    bool `imitates:"bth/len/1" does:"extension headers that a packet lacks are read as zeros"`
	ReservedBitsSent      bool `imitates:"bth/resv/1" does:"reserved bits of the BTH are sent as ones"`
	ReservedBitsChecked   bool `imitates:"bth/resv/2" does:"reserved bits must be zero"`
	SolicitedInverted     bool `imitates:"bth/se/2" does:"a CQ armed for solicited completions reports the others"`
	UnreliableAckReq      bool `imitates:"bth/ackreq/2, uc/8" does:"requests of UC and UD carry AckReq"`
	PadSloppy             bool `imitates:"bth/pad/1, bth/pad/2" does:"payloads are padded to two bytes only, with stale bytes"`
	EarlyAckCounts        bool `imitates:"bth/state/2" does:"an ACK received before RTS acknowledges later requests"`

	// Answers of a responder.
	AckPSNOff          bool `imitates:"rc/psn/5, rc/psn/11, rc/ack/2" does:"acknowledgements carry the PSN after the right one"`
	NoAcks             bool `imitates:"rc/ack/1, rc/psn/9" does:"SENDs and WRITEs are not acknowledged"`
	ReadNeedsAckReq    bool `imitates:"rc/ack/3" does:"READs and atomics without AckReq are not answered"`
	AckOvertakesRead   bool `imitates:"rc/ack/11" does:"the ACK of a later request overtakes READ responses"`
	MSNLate            bool `imitates:"rc/msn/1, rc/msn/3" does:"the MSN in a response does not count the request that it answers"`
	CreditsInvented    bool `imitates:"rc/credit/1" does:"advertised credits are unrelated to the posted receives"`
	RNRSilent          bool `imitates:"rc/rnr/1, srq/4" does:"a message without a receive is dropped"`
	RNRTimerIgnored    bool `imitates:"rc/rnr/1, rc/rnr/11" does:"RNR NAKs always have timer code 1"`
	AETHInMiddle       bool `imitates:"rc/read/1, rc/read/2" does:"MIDDLE responses of a READ carry an AETH and four bytes less"`
	ReadPSNStuck       bool `imitates:"rc/read/3" does:"all responses of a READ carry the PSN of the request"`
	DupReadDropped     bool `imitates:"rc/read/5" does:"a duplicate READ is not answered"`
	SubReadWhole       bool `imitates:"rc/read/6" does:"a READ retransmitted in part is answered with the whole original"`
	ReplayKeepsOne     bool `imitates:"rc/atm/5" does:"only the result of the last atomic is kept"`
	BadRecvKeyIsAccess bool `imitates:"rc/send/2" does:"a receive with a bad key is reported to the peer as an access error"`
	HugeLengthIsAccess bool `imitates:"rc/len/4, rxe 6.1" does:"a length beyond 2^31 is an access error"`
	PadDelivered       bool `imitates:"rc/send/3" does:"pad bytes are delivered as data"`
	AccessNAKsSwapped  bool `imitates:"acc/1, acc/4" does:"NAKs have the wrong code"`
	AckSolicited       bool `imitates:"bth/se/1" does:"acknowledgements carry SE"`
	AckPKeyLimited     bool `imitates:"bth/pkey/2" does:"acknowledgements carry the P_Key of a limited member"`
	AckBECN            bool `imitates:"ecn/3" does:"acknowledgements carry BECN"`
	AckPayload         bool `imitates:"rc/ack/1" does:"four bytes of payload follow the AETH of acknowledgements"`

	// Requests, and what a requester makes of answers.
	Interleaves             bool `imitates:"rc/seq/5" does:"a later request is sent before the last packet of a long one"`
	ReadTakesOnePSN         bool `imitates:"rc/psn/2" does:"a READ takes one PSN"`
	AckReqNever             bool `imitates:"rc/ack/8" does:"requests never ask for an ACK"`
	ReservedNAKIsAck        bool `imitates:"rc/ack/14" does:"reserved NAK codes count as ACK"`
	NAKWaitsForTimer        bool `imitates:"rc/tmo/8" does:"a sequence NAK takes effect only when the timer expires"`
	ResponseLengthUnchecked bool `imitates:"rc/ack/13, rc/read/13" does:"a FIRST or MIDDLE response of a READ may be shorter than the path MTU"`
	ByteOrderWrong          bool `imitates:"rc/imm/1, rc/atm/11, ud/9" does:"immediate data and results of atomics are in the wrong byte order"`
	RETHPerPacket           bool `imitates:"rc/wr/1" does:"every packet of a WRITE has a RETH"`
	XRCETHMisplaced         bool `imitates:"xrc/1" does:"responses have the XRCETH, requests do not"`

	// Unreliable services, and management.
	UCLikeRC          bool `imitates:"uc/1, uc/6, uc/7" does:"UC QPs send ACKs and wait for ACKs"`
	UDPSNChecked      bool `imitates:"ud/8" does:"datagrams are filtered by PSN"`
	UDWaitsForReceive bool `imitates:"ud/7, srq/4" does:"datagrams without a receive wait for one"`
	GSIQKeyZero       bool `imitates:"ud/4" does:"MADs are sent with Q_Key 0"`

	// Defects of Linux's soft-RoCE.
	MigReqZero        bool `imitates:"R9" does:"MigReq is always 0"`
	NoCongestion      bool `imitates:"R16" does:"CNPs are neither sent nor reacted to"`
	FetchAddLeaks     bool `imitates:"R34" does:"FETCH_ADD sends stale bytes in its unused field"`
	FlushICRCDoubled  bool `imitates:"R35" does:"FLUSH counts its headers twice in the ICRC"`
	ECNFromTClass     bool `imitates:"R44" does:"the ECN bits of connections come from the traffic class"`
	GSIAckReq         bool `imitates:"R45" does:"CM datagrams carry AckReq"`
	ReservedOpSilent  bool `imitates:"R47" does:"reserved opcodes are dropped without NAK"`
	RaggedAccepted    bool `imitates:"rxe" does:"a payload that is not a multiple of four bytes is accepted without pad"`
	FixedHopLimit     bool `imitates:"rxe" does:"the hop limit is always 64"`
	NoCreditReporting bool `imitates:"rxe" does:"credits are never advertised"`
	NoCreditHeeding   bool `imitates:"rxe" does:"received credits are ignored"`

	// Migration and congestion.
	MigrationIgnored bool `imitates:"mig/1, rxe" does:"MigReq does not move a QP that is armed"`
	NAKLate          bool `imitates:"rc/psn/5, E810" does:"a sequence NAK is sent 10 ms late"`
	CNPLate          bool `imitates:"ecn/1" does:"a CNP is sent 10 ms late"`
	CNPMisaddressed  bool `imitates:"ecn/1" does:"CNPs have the QP number of the marked packet's destination, and the default P_Key"`
	CNPReservedUsed  bool `imitates:"ecn/6" does:"the reserved bytes of a CNP are set, and checked"`
	CNPTakesPSN      bool `imitates:"ecn/5" does:"a CNP counts as a packet out of order"`
}
