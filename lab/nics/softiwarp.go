package nics

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// softIWARP returns the provider of soft-iWARP NICs.
func softIWARP() *Provider {
	return iwarpStack.addTo(&Provider{
		Name: "softiwarp", Title: "soft-iWARP", Transport: verbs.TransportIWARP, Protocol: conformance.IWARP, OverTCP: true,
		Caps: verbs.CapRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapAtomics |
			verbs.CapSendInv | verbs.CapLocalInv | verbs.CapCM | verbs.CapZeroBased | verbs.CapResizeCQ,
		UnreportedStatuses: map[verbs.WCStatus]string{
			verbs.WCRetryExcErr:    "a broken connection flushes posted requests",
			verbs.WCRNRRetryExcErr: "a message without a posted receive ends the connection",
			verbs.WCRemInvReqErr:   "the peer reports the error by a Terminate message",
		},
		// Options are for an emulated NIC with siw as its peer. verbDefects are the defects of siw
		// that show in verbs calls; siwDefects are those in packets and in the NIC's state.
		Kernel: KernelDriver{Name: "siw", Options: Options{"siw_peer": true}, verbDefects: []string{"RTRIgnored", "InvalidateUnreported"}},
		Profiles: []Profile{
			{Name: "siw-6.12", Title: "soft-iWARP of Linux 6.12", Defects: siwDefects, Restrictions: siwRestrictions},
			{Name: "siw-6.1", Title: "soft-iWARP of Linux 6.1", Defects: siwDefects, Restrictions: siwRestrictions},
		},
		CRCOption: "crc",
		Defects:   fromTables(defects.IWARP.All(), defects.MPA.All(), defects.RDMAP.All(), defects.Shared.All()),
	})
}

// iwarpStack opens soft-iWARP NICs.
var iwarpStack = &stack[softiwarp.Config, iwarpOptions]{
	defaults: iwarpOptions{CRC: true},
	configure: func(cfg *softiwarp.Config, options iwarpOptions) {
		cfg.NIC.MPA.Markers, cfg.NIC.MPA.NoCRC, cfg.ClientServer = options.Markers, !options.CRC, options.ClientServer
		if options.SIWPeer {
			// Frames are aligned to TCP segments, and an empty WRITE follows a first frame.
			cfg.NIC.MPA.Align, cfg.NIC.EmptyWriteAfter = true, 50*time.Millisecond
		}
	},
	setDefect: func(cfg *softiwarp.Config, name string) bool { return defects.SetSoftIWARP(&cfg.NIC.Policy, name) },
	setNIC: func(cfg *softiwarp.Config, nic *NICConfig) {
		cfg.Name, cfg.Addrs, cfg.Costs = nic.Name, nic.addrs(), nic.costs()
	},
	inWorld: func(w *sim.World, port *sim.Port, nic *NICConfig, cfg softiwarp.Config) (verbs.Context, error) {
		var streams link.StreamNet = port.StreamHost()
		if nic.WrapStreams != nil {
			streams = nic.WrapStreams(streams)
		}
		return asContext(softiwarp.InWorld(w, port, streams, cfg))
	},
	onSockets: func(nic *NICConfig, cfg softiwarp.Config) (verbs.Context, error) {
		if nic.Cable != nil {
			return nil, errStreamsOnCable
		}
		if nic.Capture != nil {
			cfg.Decorate = func(n link.StreamWaiter) link.StreamWaiter {
				return nic.Capture.WrapStreams(nic.Name, n).(link.StreamWaiter)
			}
		}
		return asContext(softiwarp.OnTCP(tcplink.Config{}, cfg))
	},
}

var errStreamsOnCable = errors.New("soft-iWARP needs TCP, and a cable in shared memory carries datagrams only: use another provider, or another cable")

// iwarpOptions are the options of soft-iWARP NICs.
type iwarpOptions struct {
	// Markers requests MPA markers from peers.
	Markers bool `json:"markers"`
	// CRC requests the MPA CRC. Without it, the CRC is used if the peer requests it.
	CRC bool `json:"crc"`
	// ClientServer uses the connection model of RFC 5044 when it connects: the passive
	// side may not send first. When it accepts, it follows the request.
	ClientServer bool `json:"client_server"`
	// SIWPeer adapts to peers with siw, which rejects a CRC that is split over two TCP
	// segments, and may process a first frame only when another arrives.
	SIWPeer bool `json:"siw_peer"`
}

// siwRestrictions are those of siw: programs cannot use atomics, memory windows or Send with
// Invalidate, and as a client it only knows the connection model of RFC 5044.
var siwRestrictions = Restrictions{MissingCaps: verbs.CapAtomics | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapSendInv, Options: Options{"client_server": true}}

// siwDefects are the defects of siw, whose versions do not differ on the wire. BusyCloseIsIdle is
// left out, because it is coarser than siw's behaviour, which FINDropsAnswers hides. NeverRaisesCRC
// and RefusesPlainReply belong to a siw built with CRC.
var siwDefects = []string{
	// Start-up.
	"NoStartupTerminate", "RTRIgnored", "NeverAsksCRC", "RefusesMarkers", "EchoesFlags", "TakesRevision0", "PrivateData256", "LengthWraps",
	"BadReplyHangs", "DepthsAlwaysCount", "OneRTR", "NoFallback", "NoFence", "EarlyFence", "FirstFPDUStuck", "IRDRoundedUp", "ORDRoundedUp",
	// Frames.
	"StalePad", "TrailerCut", "HandsUpFirst", "PlacesEarly", "MSSRoundedDown",
	// DDP and RDMAP.
	"TaggedFlagIgnored", "ReadQueueUnchecked", "TaggedInOrder", "WrapUnchecked", "ReadRightsUnchecked", "ReadPayloadSilent",
	"OpcodeChangeSilent", "ShortResponseTaken", "LaterResponseUnchecked", "ZeroResponseChecked", "InvalidateErrorKept", "InvalidateAnything",
	"NeverSolicited", "NoExtensions", "ZeroReadRepeats", "SendsOvertake", "LongIsNoBuffer", "ReadOverflowsStream", "UnaskedIsLocal",
	// Terminates and the end.
	"TermBitsSwapped", "TermPayloadLength", "TermBareOperation", "TermReadStale", "TermInvalidateFlag", "TermSkipped", "TerminateUnreported",
	"InvalidateUnreported", "FINDropsAnswers",
}
