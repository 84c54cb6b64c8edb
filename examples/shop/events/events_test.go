package events

import "testing"

func TestAnEventThatLacksWhatItsReadersNeedIsRefused(t *testing.T) {
	if e, err := Read([]byte(`{"number":7,"article":"tea","quantity":2,"mail_to":"a"}`)); err != nil || e != (OrderPlaced{7, "tea", 2, "a"}) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, payload := range []string{``, `tea`, `{}`, `{"number":7,"quantity":2}`, `{"number":7,"article":"tea"}`, `{"article":"tea","quantity":2}`} {
		if _, err := Read([]byte(payload)); err == nil {
			t.Errorf("%s is taken", payload)
		}
	}
}
