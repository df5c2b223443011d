package traffic

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// modifiedQP records the masks of its transitions.
type modifiedQP struct {
	verbs.QP
	typ   verbs.QPType
	masks []verbs.QPAttrMask
}

func (q *modifiedQP) Type() verbs.QPType { return q.typ }

func (q *modifiedQP) Modify(_ verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.masks = append(q.masks, mask)
	return nil
}

// The masks are the required attributes in ibv_modify_qp(3).
func TestConnectSetsRequiredAttributesOfEachType(t *testing.T) {
	const (
		access   = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
		path     = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
		respond  = verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		send     = verbs.QPAttrState | verbs.QPAttrSQPSN
		retry    = verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
		timeout  = verbs.QPAttrTimeout
		datagram = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey
	)
	for typ, want := range map[verbs.QPType][]verbs.QPAttrMask{
		verbs.QPTypeRC:      {access, path | respond, send | timeout | retry},
		verbs.QPTypeUC:      {access, path, send},
		verbs.QPTypeUD:      {datagram, verbs.QPAttrState, send},
		verbs.QPTypeXRCSend: {access, path, send | timeout | retry},
		verbs.QPTypeXRCRecv: {access, path | respond, send | timeout},
	} {
		q := &modifiedQP{typ: typ}
		if err := Connect(q, verbs.QPAttr{}); err != nil || !slices.Equal(q.masks, want) {
			t.Errorf("%v: masks %#x, want %#x (%v)", typ, q.masks, want, err)
		}
	}
}
