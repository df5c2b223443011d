package mpa

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/testutil"
)

// rows has a test for every requirement of RFC 5044 and RFC 6581 that a
// connection by itself can meet or break, by its number in the list of
// requirements.
var rows = testutil.Join(fpduRows, markerRows, crcRows, streamRows, frameRows, startRows, errorRows, depthRows, rtrRows)

// elsewhere says where those are met that are not a connection's.
var elsewhere = map[string]string{
	"rfc6581/5/1":    "the RTR is a message like any other: the engine sends it first",
	"rfc6581/9.2/11": "what an RTR names is checked, or not, where it is executed",
	"rfc6581/9.2/12": "an RTR counts as the message that it is, in DDP",
	"rfc6581/9.3/1":  "local failures are the engine's, and so is the Terminate that tells of them",
}

// sections is how many requirements each section has.
var sections = map[string]int{
	"rfc5044/3": 3, "rfc5044/4.1": 6, "rfc5044/4.2": 3, "rfc5044/4.3": 9, "rfc5044/4.4": 9, "rfc5044/4.5": 3,
	"rfc5044/5.1": 3, "rfc5044/5.2": 1, "rfc5044/6": 2, "rfc5044/7.1": 1, "rfc5044/7.1.1": 14, "rfc5044/7.1.2": 14,
	"rfc5044/7.2": 1, "rfc5044/8": 5, "rfc5044/C.1": 1,
	"rfc6581/5": 1, "rfc6581/6": 5, "rfc6581/8": 1, "rfc6581/9": 1, "rfc6581/9.1": 10, "rfc6581/9.2": 12,
	"rfc6581/9.3": 1, "rfc6581/10": 3, "rfc6581/12": 1,
}

func TestRequirements(t *testing.T) { rows.Run(t) }

func TestEveryRequirementHasATestOrAReason(t *testing.T) { rows.ExpectComplete(t, sections, elsewhere) }
