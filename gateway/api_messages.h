/* api_messages.h - chat messages as clients send them to the plain form the chat template gets.
 *
 * Rules: roles from a fixed list (developer = system; function = tool); content a string, null (=
 * "") or a list of
 * {"type":"text"} parts, joined by a line feed as vLLM does; other parts are 400. Further keys of a
 * message (name, tool_calls, tool_call_id) are handed on. The result is a new array (json_decref).
 */
#ifndef SLUICE_GATEWAY_API_MESSAGES_H
#define SLUICE_GATEWAY_API_MESSAGES_H

#include "gateway/api_fields.h"

json_t *api_messages(const json_t *body, struct err *e);

#endif
