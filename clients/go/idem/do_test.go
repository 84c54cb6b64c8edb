package idem

import (
	"context"
	"testing"
)

func TestAnEffectIsReservedRunAndItsResultStored(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		var granted *Grant
		answer, err := c.Do(t.Context(), operation(), func(_ context.Context, g *Grant) (*Result, error) {
			granted = g
			return body("receipt"), nil
		})
		if err != nil || string(answer.Result.GetBody()) != "receipt" || answer.Replayed || answer.Fence != 7 || answer.Unrecorded != nil {
			t.Errorf("answered %+v, %v", answer, err)
		}
		if granted.Attempt != 1 || granted.Fence != 7 {
			t.Errorf("granted %+v", granted)
		}
		if f.sent() != "Reserve Complete" {
			t.Errorf("sent %s", f.sent())
		}
	})
}
