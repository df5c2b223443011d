package mpa

// Defects make a Conn behave as soft-iWARP of Linux does ("siw"); the zero value has none.
// Tags say what a defect does, and which requirement of the RFCs it violates. Other
// defects of MPA are in emu/defects/mutants.
type Defects struct {
	// Start-up.
	NeverAsksCRC      bool `imitates:"siw, rfc5044/4.4/2" does:"start-up frames never ask for CRCs"`
	NeverRaisesCRC    bool `imitates:"siw, rfc5044/7.1.1/7" does:"a responder that wants CRCs leaves them off if the Request does not ask"`
	RefusesPlainReply bool `imitates:"siw, rfc5044/7.1.1/7" does:"an initiator that wants CRCs ends the connection if the Reply does not ask for them too"`
	RefusesMarkers    bool `imitates:"siw, rfc5044/4.3/1" does:"a Request for markers is rejected, a Reply with one ends the connection"`
	EchoesFlags       bool `imitates:"siw, rfc5044/7.1.1/8, rfc5044/7.1.1/9" does:"a Reply repeats the R and the reserved flags of the Request"`
	TakesRevision0    bool `imitates:"siw, rfc5044/7.1.1/11" does:"a Request of revision 0 is treated like one of revision 1"`
	PrivateData256    bool `imitates:"siw, rfc5044/7.1.1/14" does:"start-up frames with more than 256 octets of private data are malformed"`
	LengthWraps       bool `imitates:"siw, rfc5044/7.1.1/12" does:"PD_Length is computed in eight bits"`
	BadReplyHangs     bool `imitates:"siw, rfc5044/7.1.1/14, rfc6581/6/4" does:"a Reply with more than 256 octets of private data, or with less than its enhanced data, stops the connection for good"`
	DepthsAlwaysCount bool `imitates:"siw, rfc6581/9.1/9, rfc6581/9.1/10" does:"a depth that is not to be negotiated is taken for 16383"`
	OneRTR            bool `imitates:"siw, rfc6581/9.2/4" does:"a Reply offers a write as RTR, a read only if nothing else was asked for, and never a send"`
	NoFallback        bool `imitates:"siw, rfc6581/10/3" does:"an unenhanced peer is not recognised"`

	// Full operation.
	NoFence        bool `imitates:"siw, rfc5044/7.1.2/9" does:"a responder sends before the first FPDU has come"`
	EarlyFence     bool `imitates:"siw, rfc6581/9.2/10" does:"a responder may send after the first octets, whether or not they become an FPDU"`
	FirstFPDUStuck bool `imitates:"siw, rfc5044/7.1.2/6" does:"the first FPDU after a Reply waits until more comes, unless an RTR was agreed on"`
	StalePad       bool `imitates:"siw, rfc5044/4.1/3" does:"the pad of short FPDUs is what an earlier one left there"`
	TrailerCut     bool `imitates:"siw, rfc5044/5.1/3" does:"a segment that ends inside pad or CRC makes the CRC wrong"`
	HandsUpFirst   bool `imitates:"siw, rfc5044/6/1" does:"an FPDU is placed before its CRC is checked"`
	PlacesEarly    bool `imitates:"siw, rfc5044/6/2" does:"octets of a Write are placed as they come, before its FPDU is whole"`
	MSSRoundedDown bool `imitates:"siw, rfc5044/4.5/1" does:"FPDUs fill segments only to a multiple of eight octets, and each is written by itself"`
}
