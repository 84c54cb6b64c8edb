package orders

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAnOrderThatCanNotBeMeantIsRefused(t *testing.T) {
	read := func(body string) error {
		_, err := orderIn(httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)))
		return err
	}
	if err := read(`{"reference": "1", "article": "tea", "quantity": 2, "mail_to": "alice"}`); err != nil {
		t.Error(err)
	}
	for name, body := range map[string]string{
		"no JSON":           `tea`,
		"two of them":       `{"reference": "1", "article": "tea", "quantity": 2, "mail_to": "alice"} {}`,
		"an unknown member": `{"reference": "1", "article": "tea", "quantity": 2, "mail_to": "alice", "tip": 1}`,
		"no reference":      `{"article": "tea", "quantity": 2, "mail_to": "alice"}`,
		"nothing":           `{"reference": "1", "article": "tea", "quantity": 0, "mail_to": "alice"}`,
		"too much":          `{"reference": "1", "article": "tea", "quantity": 1001, "mail_to": "alice"}`,
		"a zero byte":       `{"reference": "1\u0000", "article": "tea", "quantity": 1, "mail_to": "alice"}`,
		"too long":          `{"reference": "` + strings.Repeat("1", 201) + `", "article": "tea", "quantity": 1, "mail_to": "alice"}`,
	} {
		if read(body) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
