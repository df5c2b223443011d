package dcqcn

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultParamsAreValidForEveryLineRate(t *testing.T) {
	for _, line := range []uint64{1, 1e6, 1e9, 25e9, 400e9, 1.6e12, maxRateBps} {
		p := DefaultParams(line)
		if err := p.Validate(); err != nil {
			t.Errorf("line of %d bit/s: %v", line, err)
		}
		if p.MaxRateBps != line {
			t.Errorf("line of %d bit/s: MaxRateBps is %d", line, p.MaxRateBps)
		}
	}
}

func TestAlphaIntervalExceedsCNPInterval(t *testing.T) {
	if p := DefaultParams(1e9); p.AlphaInterval <= DefaultCNPInterval {
		t.Errorf("alpha decays every %v although CNPs come every %v under congestion", p.AlphaInterval, DefaultCNPInterval)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, spoil := range map[string][]func(*Params){
		"MaxRateBps":       {func(p *Params) { p.MaxRateBps = 0 }, func(p *Params) { p.MaxRateBps = maxRateBps + 1 }},
		"MinRateBps":       {func(p *Params) { p.MinRateBps = 0 }, func(p *Params) { p.MinRateBps = p.MaxRateBps + 1 }},
		"G":                {func(p *Params) { p.G = 0 }, func(p *Params) { p.G = One + 1 }},
		"AlphaInterval":    {func(p *Params) { p.AlphaInterval = 999 }, func(p *Params) { p.AlphaInterval = time.Second + 1 }},
		"IncreaseInterval": {func(p *Params) { p.IncreaseInterval = 999 }, func(p *Params) { p.IncreaseInterval = time.Second + 1 }},
		"ByteCounter":      {func(p *Params) { p.ByteCounter = 0 }, func(p *Params) { p.ByteCounter = maxByteCounter + 1 }},
		"RateAIBps":        {func(p *Params) { p.RateAIBps = 0 }, func(p *Params) { p.RateAIBps = maxRateBps + 1 }},
		"RateHAIBps":       {func(p *Params) { p.RateHAIBps = 0 }, func(p *Params) { p.RateHAIBps = maxRateBps + 1 }},
		"MinDecInterval":   {func(p *Params) { p.MinDecInterval = -1 }},
		"CatchUp":          {func(p *Params) { p.CatchUp = -1 }, func(p *Params) { p.CatchUp = maxCatchUp + 1 }},
	} {
		for i, f := range spoil {
			p := DefaultParams(40e9)
			f(&p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), " "+field+" is ") {
				t.Errorf("%s spoiled (%d): error is %v", field, i, err)
			}
		}
	}
}
