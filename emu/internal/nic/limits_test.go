package nic

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// Every limit has a default, keeps a valid value, and is named in the error for an invalid one.
func TestLimitDefaultsAndValidation(t *testing.T) {
	all := Limits{}.OrDefault()
	if err := all.Validate(); err != nil {
		t.Error(err)
	}
	limits := reflect.ValueOf(&all).Elem()
	for i := range limits.NumField() {
		name := limits.Type().Field(i).Name
		if limits.Field(i).IsZero() {
			t.Errorf("no default for %s", name)
		}
		var one Limits
		field := reflect.ValueOf(&one).Elem().Field(i)
		if field.Kind() != reflect.Int {
			continue
		}
		field.SetInt(5)
		if got := one.OrDefault(); reflect.ValueOf(got).Field(i).Int() != 5 {
			t.Errorf("%s is not kept: %+v", name, got)
		}
		field.SetInt(-1)
		if err := one.OrDefault().Validate(); err == nil || !strings.Contains(err.Error(), "limit of "+name) {
			t.Errorf("%s is -1: %v", name, err)
		}
	}
	if got := (Limits{RdAtomic: 2}).OrDefault(); got.RdAtomic != 2 {
		t.Errorf("RdAtomic is %d, want 2", got.RdAtomic)
	}
	if err := (Limits{MRs: MaxEntries}).OrDefault().Validate(); err != nil {
		t.Error(err)
	}
	if err := (Limits{MRs: MaxEntries + 1}).OrDefault().Validate(); err == nil || !strings.Contains(err.Error(), "memory regions") {
		t.Errorf("more regions than keys: %v", err)
	}
}

// The sizes of queues cannot exceed the limits.
func TestCheckCaps(t *testing.T) {
	edit := func(l *Limits, _ *Policy) { l.QPWR, l.SGE, l.Inline, l.SRQWR = 8, 2, 16, 8 }
	most := verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 16}
	sound, pd := newBase(t, edit)
	if err := sound.CheckCaps(&most); err != nil {
		t.Error(err)
	}
	caps := reflect.ValueOf(&most).Elem()
	for i := range caps.NumField() {
		for _, value := range []int64{-1, caps.Field(i).Int() + 1} {
			c := most
			reflect.ValueOf(&c).Elem().Field(i).SetInt(value)
			name := caps.Type().Field(i).Name
			if err := sound.CheckCaps(&c); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%s %d: %v", name, value, err)
			}
		}
	}
	if _, err := sound.CreateSRQ(SRQConfig{PD: pd, MaxWR: 9}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an SRQ of 9: %v", err)
	}
}
