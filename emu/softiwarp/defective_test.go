package softiwarp

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/defects/iwarpwire"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// harmless are defects of the wire that two programs which only exchange messages do
// not notice.
var harmless = []string{
	"CRCAlwaysChecked", "SegmentsUnaligned", "SkipsGarbage", "Resynchronises", "MPAReservedRefused", "MarkersKept", "KeyPrefixOnly",
	"AnyRevision", "BadRequestHangs", "ShortFramesTaken", "LongPrivateDataTaken", "PrivateDataOverrun", "RejectCloses", "RejectIsAccept",
	"TalksAfterReject", "EnhancedRevision1", "DemandsRevision2", "ForcesEnhanced", "DepthsUnbounded", "ReplyDepthsIgnored", "RTRUnasked",
	"RTRLate", "RTRBitsLeft", "RTRAlwaysExpected", "ErrorResets", "TermHeaderStale", "TermAllHeaders", "TermOtherQueue", "CodesShifted",
	"MPAErrorType", "TerminateAnswered", "StrangeTerminateIgnored", "LocalErrorSilent", "UnusedFieldsStale", "ZeroLengthSkipped",
	"QueuesMixed", "SegmentEdgeLost", "ImmediateOfFour", "ReservedBitsChecked", "VersionsUnchecked", "UntaggedUnchecked", "OddOffsetRefused",
	"OpcodeMasked", "ReadSize16", "EverySendSolicited", "WritesPlacedLate", "AddMaskIsAnd", "MasksSwapped", "SwapsAlways", "AnyAtomicAdds",
	"ImmediateAnyLength",
}

// Whatever is wrong with a device, in either role, on a stream that is cut anywhere,
// it does not break down; and many defects do not keep messages from arriving.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	names := make([]string, 0, 256)
	for _, q := range slices.Concat(defects.All(new(iwarpwire.Defects)), defects.IWARP.All(), defects.MPA.All(), defects.RDMAP.All(), defects.Shared.All()) {
		names = append(names, q.Name)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			for role := range 2 {
				err := echoWith(t, name, role)
				var broken *sim.PanicError
				if errors.As(err, &broken) {
					t.Fatalf("role %d: %v\n%s", role, broken.Value, broken.Stack)
				}
				if slices.Contains(harmless, name) && err != nil {
					t.Errorf("role %d: %v", role, err)
				}
			}
		})
	}
}

// echoWith has a defective device and a sound one exchange messages. The defective one
// connects, or accepts if role is 1.
func echoWith(t *testing.T, name string, role int) error {
	var defective Config
	if defects.Set(&defective.Defects, name, true) != nil && !defects.SetSoftIWARP(&defective.NIC.Policy, name) {
		t.Fatalf("no defect %s", name)
	}
	cfgs := []Config{defective, {}}
	if role == 1 {
		slices.Reverse(cfgs)
	}
	cut := sim.StreamConfig{CutPPM: 200_000, BufferBytes: 9000}
	w, a, b := pairInWorld(t, 7, sim.NetConfig{Stream: cut}, cfgs...)
	defer w.Close()
	echoOf(a, b, 20).InWorld(t, w)
	return w.RunPrograms()
}
