package engine

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultParamsAreValidForEveryLineRate(t *testing.T) {
	for _, line := range []uint64{1, 1e6, 1e9, 25e9, 400e9, 1.6e12, maxRateBps} {
		p := defaultCongestionParams(line)
		if err := p.Validate(); err != nil {
			t.Errorf("line of %d bit/s: %v", line, err)
		}
		if p.MaxRateBps != line {
			t.Errorf("line of %d bit/s: MaxRateBps is %d", line, p.MaxRateBps)
		}
	}
}

func TestAlphaIntervalExceedsCNPInterval(t *testing.T) {
	if p := defaultCongestionParams(1e9); p.AlphaInterval <= defaultCNPInterval {
		t.Errorf("alpha decays every %v although CNPs come every %v under congestion", p.AlphaInterval, defaultCNPInterval)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, spoil := range map[string][]func(*CongestionParams){
		"MaxRateBps":       {func(p *CongestionParams) { p.MaxRateBps = 0 }, func(p *CongestionParams) { p.MaxRateBps = maxRateBps + 1 }},
		"MinRateBps":       {func(p *CongestionParams) { p.MinRateBps = 0 }, func(p *CongestionParams) { p.MinRateBps = p.MaxRateBps + 1 }},
		"G":                {func(p *CongestionParams) { p.G = 0 }, func(p *CongestionParams) { p.G = alphaOne + 1 }},
		"AlphaInterval":    {func(p *CongestionParams) { p.AlphaInterval = 999 }, func(p *CongestionParams) { p.AlphaInterval = time.Second + 1 }},
		"IncreaseInterval": {func(p *CongestionParams) { p.IncreaseInterval = 999 }, func(p *CongestionParams) { p.IncreaseInterval = time.Second + 1 }},
		"ByteCounter":      {func(p *CongestionParams) { p.ByteCounter = 0 }, func(p *CongestionParams) { p.ByteCounter = maxByteCounter + 1 }},
		"RateAIBps":        {func(p *CongestionParams) { p.RateAIBps = 0 }, func(p *CongestionParams) { p.RateAIBps = maxRateBps + 1 }},
		"RateHAIBps":       {func(p *CongestionParams) { p.RateHAIBps = 0 }, func(p *CongestionParams) { p.RateHAIBps = maxRateBps + 1 }},
		"MinDecInterval":   {func(p *CongestionParams) { p.MinDecInterval = -1 }},
		"CatchUp":          {func(p *CongestionParams) { p.CatchUp = -1 }, func(p *CongestionParams) { p.CatchUp = maxCatchUp + 1 }},
	} {
		for i, f := range spoil {
			p := defaultCongestionParams(40e9)
			f(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), " "+field+" is ") {
				t.Errorf("%s spoiled (%d): error is %v", field, i, err)
			}
		}
	}
}
